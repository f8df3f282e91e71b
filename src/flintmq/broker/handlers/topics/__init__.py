"""Requests about topics and the offsets in their partitions."""
