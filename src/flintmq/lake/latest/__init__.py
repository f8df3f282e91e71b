"""A table with the last row of each key of another table."""
