"""`flintmq top`."""
