"""`flintmq transaction`."""
