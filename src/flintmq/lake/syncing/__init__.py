"""Copying topics into tables, exactly once."""
