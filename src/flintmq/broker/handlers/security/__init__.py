"""Requests about ACLs and other security metadata."""
