"""TLS: key and trust stores, contexts that are replaced while running, and encrypted connections."""
