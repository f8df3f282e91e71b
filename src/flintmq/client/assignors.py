"""How the members of a consumer group share partitions: what they tell each other, and who gets what. Pure.

Members say which topics they read (a subscription), the leader among them says who reads what (assignments); to
the broker both are bytes. Assignors are those that nearly every client knows, by the names that all of them use. The
result depends on nothing but the members and the partition counts, so any member may lead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from flintmq.effects import Buffer
from flintmq.errors import ProtocolError
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

PROTOCOL_TYPE: Final = "consumer"

Assignment = dict[str, list[int]]
"""Partitions by topic."""
Subscriptions = Mapping[str, Sequence[str]]
"""By member id, the topics it reads."""

_VERSION = struct.Struct(">h")
_FIRST: Final = 0
"""Every later version begins as this one, so it is the one to write and the one to read."""


# ---- as bytes


def encode_subscription(topics: Iterable[str]) -> bytes:
    return _VERSION.pack(_FIRST) + encode(ConsumerProtocolSubscription(topics=list(topics)), _FIRST)


def decode_subscription(data: Buffer) -> list[str] | None:
    """The topics; None where a member says something that makes no sense."""
    if not _has_version(data):
        return None
    try:
        return decode(ConsumerProtocolSubscription, data, _FIRST, _VERSION.size)[0].topics
    except ProtocolError:
        return None


def encode_assignment(assignment: Mapping[str, Sequence[int]]) -> bytes:
    topics = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in assignment.items()
    ]
    return _VERSION.pack(_FIRST) + encode(ConsumerProtocolAssignment(assigned_partitions=topics), _FIRST)


def decode_assignment(data: Buffer) -> Assignment | None:
    """None where it makes no sense. No bytes at all are no partitions: the leader left this member out."""
    if not data:
        return {}
    if not _has_version(data):
        return None
    try:
        found = decode(ConsumerProtocolAssignment, data, _FIRST, _VERSION.size)[0]
    except ProtocolError:
        return None
    assignment: Assignment = {}
    for one in found.assigned_partitions:
        assignment.setdefault(one.topic, []).extend(one.partitions)
    return assignment


def _has_version(data: Buffer) -> bool:
    return len(data) >= _VERSION.size and _VERSION.unpack_from(data)[0] >= _FIRST


# ---- who gets what


def assign_range(members: Subscriptions, partition_counts: Mapping[str, int]) -> dict[str, Assignment]:
    """Of each topic, a run of neighbours to each of its readers, to the first ones one more where it does not fit."""
    assigned: dict[str, Assignment] = {member: {} for member in members}
    for topic in _topics(members):
        readers = [member for member in sorted(members) if topic in members[member]]
        each, more = divmod(partition_counts.get(topic, 0), len(readers))
        first = 0
        for at, member in enumerate(readers):
            end = first + each + (at < more)
            if end > first:
                assigned[member][topic] = list(range(first, end))
            first = end
    return assigned


def assign_round_robin(members: Subscriptions, partition_counts: Mapping[str, int]) -> dict[str, Assignment]:
    """The partitions of all topics in a row, dealt to the members in turn, past those who do not read the topic."""
    assigned: dict[str, Assignment] = {member: {} for member in members}
    ring = sorted(members)
    turn = 0
    for topic in _topics(members):
        for partition in range(partition_counts.get(topic, 0)):
            while topic not in members[ring[turn % len(ring)]]:
                turn += 1
            assigned[ring[turn % len(ring)]].setdefault(topic, []).append(partition)
            turn += 1
    return assigned


def _topics(members: Subscriptions) -> list[str]:
    return sorted({topic for topics in members.values() for topic in topics})


Assignor = Callable[[Subscriptions, Mapping[str, int]], dict[str, Assignment]]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_range, "roundrobin": assign_round_robin}
"""The preferred one first."""
