"""`flintmq token`."""
