"""A partition as clients name it."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""The topic's name and the number of the partition. A plain tuple: it is built and hashed for every partition of a
request, and a class of its own would make that dearer."""
