"""`flintmq group`."""
