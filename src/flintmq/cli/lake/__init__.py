"""`flintmq lake`."""
