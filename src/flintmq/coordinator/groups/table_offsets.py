"""Committed offsets that are the progress of lake tables: how far the slowest table of each partition is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.coordinator.groups.offsets import CommittedOffset, Offsets
from flintmq.partitions.maintenance.table_retention import TableOffset
from flintmq.protocol.table_progress import table_of
from flintmq.records.topic_partition import TopicPartition


def add_tables(found: dict[TopicPartition, TableOffset], group_id: str, offsets: Offsets) -> int:
    """Add the tables of one group to those that were found before. Return how many offsets were looked at."""
    for topic, partitions in offsets.committed.items():
        add_topic(found, group_id, topic, partitions)
    return sum(map(len, offsets.committed.values()))


def add_topic(
    found: dict[TopicPartition, TableOffset],
    group_id: str,
    topic: str,
    partitions: Mapping[int, CommittedOffset],
) -> None:
    for partition, (value, _) in partitions.items():
        table = table_of(value.metadata)
        if table is None:
            continue
        slowest = found.get((topic, partition))
        if slowest is None or value.offset < slowest.offset:
            found[topic, partition] = TableOffset(value.offset, table, group_id)
