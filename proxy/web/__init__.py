"""Everything that speaks HTTP with clients."""
