"""The pure core: what is folded, where it is cut, what is sent in its place. Nothing here waits."""
