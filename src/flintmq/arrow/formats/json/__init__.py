"""JSON values as rows."""
