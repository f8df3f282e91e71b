"""Authentication and credentials."""
