"""`flintmq pipeline`."""
