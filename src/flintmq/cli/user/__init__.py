"""`flintmq user`."""
