"""`flintmq lake quarantine`."""
