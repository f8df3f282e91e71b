"""`flintmq bench`."""
