"""The pure core: what is folded, where it is cut, and how what is sent is put together. Nothing here waits."""
