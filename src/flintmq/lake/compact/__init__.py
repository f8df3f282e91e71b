"""Merging many small files of a table into few large ones."""
