"""Security decisions: principals, certificates, and later authentication and authorization. Pure: no sockets."""
