"""`flintmq quota`."""
