"""`flintmq produce`."""
