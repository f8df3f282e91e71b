"""Committed and pending offsets of one group.

An offset that is committed inside a transaction is pending until the transaction's marker comes; of a pending and a
plain commit of the same partition the one whose record came later counts, whenever the marker came. A tombstone takes
both away. Changed by records and markers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from flintmq.coordinator.groups.records import OffsetValue
from flintmq.records.topic_partition import TopicPartition

"""Topic and partition."""


class CommittedOffset(NamedTuple):
    value: OffsetValue
    record_offset: int


@dataclass(slots=True)
class Offsets:
    committed: dict[str, dict[int, CommittedOffset]] = field(default_factory=dict)
    """By topic and partition."""
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """By producer id: one transaction each."""
    _open: dict[TopicPartition, int] = field(default_factory=dict)
    """How many transactions have a pending offset of the partition."""

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        of_topic = self.committed.get(topic)
        return None if of_topic is None else of_topic.get(partition)

    def is_unstable(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._open

    def is_known(self, topic: str, partition: int) -> bool:
        return self.get(topic, partition) is not None or self.is_unstable(topic, partition)

    @property
    def is_empty(self) -> bool:
        return not self.committed and not self._open

    def places(self) -> Iterator[TopicPartition]:
        """Of all partitions with a committed or pending offset, each once."""
        for topic, partitions in self.committed.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self._open:
            if self.get(topic, partition) is None:
                yield topic, partition

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        self.committed.setdefault(topic, {})[partition] = committed

    def put_pending(self, producer_id: int, place: TopicPartition, committed: CommittedOffset) -> None:
        of_producer = self.pending.setdefault(producer_id, {})
        if place not in of_producer:
            self._open[place] = self._open.get(place, 0) + 1
        of_producer[place] = committed

    def remove(self, topic: str, partition: int) -> None:
        of_topic = self.committed.get(topic)
        if of_topic is not None:
            of_topic.pop(partition, None)
            if not of_topic:
                del self.committed[topic]
        if self._open.pop((topic, partition), None):
            for producer_id in tuple(self.pending):
                self._forget(producer_id, (topic, partition))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        ended = self.pending.pop(producer_id, {})
        for place, offset in ended.items():
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]
            known = self.get(*place)
            if committed and (known is None or offset.record_offset > known.record_offset):
                self.put(*place, offset)

    def _forget(self, producer_id: int, place: TopicPartition) -> None:
        of_producer = self.pending[producer_id]
        of_producer.pop(place, None)
        if not of_producer:
            del self.pending[producer_id]


def expired(group: Group, offsets: Offsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """What nobody reads and has not been committed for the time of retention (KIP-211)."""
    since = _expiry_base(group)
    if since is None:
        return []
    return [
        (topic, partition)
        for topic, partitions in offsets.committed.items()
        if not group.is_subscribed(topic)
        for partition, committed in partitions.items()
        if _is_due(committed.value, since, now_ms, retention_ms) and not offsets.is_unstable(topic, partition)
    ]


def _is_due(value: OffsetValue, since: Callable[[OffsetValue], int], now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp != -1:
        # Clients of old versions say for themselves how long an offset is to be kept.
        return now_ms >= value.expire_timestamp
    return now_ms - since(value) >= retention_ms


def _expiry_base(group: Group) -> Callable[[OffsetValue], int] | None:
    """From when the retention of an offset runs; None while none of the group's may expire."""
    if not group.is_simple and group.state is GroupState.EMPTY and group.state_timestamp != -1:
        return lambda value: group.state_timestamp
    knows_topics = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.subscribed_topics is not None
    if (
        group.is_simple
        or group.state is GroupState.EMPTY
        or (group.state is GroupState.STABLE and knows_topics)
    ):
        return lambda value: value.commit_timestamp
    return None
