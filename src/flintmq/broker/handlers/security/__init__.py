"""Authentication, credentials and ACLs."""
