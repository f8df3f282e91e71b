"""`flintmq spark`."""
