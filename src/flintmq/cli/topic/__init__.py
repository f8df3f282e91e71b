"""`flintmq topic`."""
