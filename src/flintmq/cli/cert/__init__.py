"""`flintmq cert`: certificates for trying TLS."""
