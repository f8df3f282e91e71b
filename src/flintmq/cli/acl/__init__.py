"""`flintmq acl`."""
