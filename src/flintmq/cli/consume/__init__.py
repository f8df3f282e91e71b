"""`flintmq consume`."""
