"""Copies of a partition on several brokers: what a leader knows of its followers, and how followers fetch."""
