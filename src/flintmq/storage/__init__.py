"""The log on disk: segments, indexes, producer state, recovery. Knows bytes and offsets, not requests."""
