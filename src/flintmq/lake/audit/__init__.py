"""Comparing a topic with its table, row for row."""
