"""`lake rename`."""
