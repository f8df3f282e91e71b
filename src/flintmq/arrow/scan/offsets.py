"""Offsets of many partitions: as Spark's Kafka source writes them in JSON, where reading starts and ends, and how
much of what is new one micro-batch takes. Pure.

Invariant: `to_json` is a function of the offsets alone, in one order, because Spark compares its text to see whether
there is anything new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flintmq.client.admin.topics import EARLIEST, LATEST
from flintmq.errors import ConfigurationError
from flintmq.records.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]
OFFSET_MAX: Final = (1 << 63) - 1

_EXAMPLE: Final = '{"topic": {"0": 23, "1": -2}}'


@dataclass(frozen=True, slots=True)
class EdgeBound:
    """The start (EARLIEST) or the end (LATEST) of every partition."""

    marker: int


@dataclass(frozen=True, slots=True)
class OffsetsBound:
    """An offset for each partition; EARLIEST and LATEST may stand for one."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class TimestampBound:
    """The first record at or after a time: one for all partitions, or one for each."""

    timestamp_ms: int | None
    by_partition: Offsets


Bound = EdgeBound | OffsetsBound | TimestampBound
"""Where reading starts, or where it ends."""

FROM_EARLIEST: Final = EdgeBound(EARLIEST)
FROM_LATEST: Final = EdgeBound(LATEST)


def is_repeatable(bound: Bound, *, late_is_latest: bool) -> bool:
    """Whether asking again, after more was written, gives the same offsets (retention apart)."""
    if isinstance(bound, OffsetsBound):
        return LATEST not in bound.offsets.values()
    return bound == FROM_EARLIEST or (isinstance(bound, TimestampBound) and not late_is_latest)


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: Any, *, what: str = "offsets") -> Offsets:
    """The inverse; ConfigurationError names `what` if it has another form."""
    found: Offsets = {}
    if not isinstance(value, dict):
        raise _not_offsets(what)
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise _not_offsets(what)
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdecimal()) or type(offset) is not int:
                raise _not_offsets(what)
            found[topic, int(partition)] = offset
    return found


def parse_json(text: str, *, what: str) -> Offsets:
    try:
        value = json.loads(text)
    except ValueError:
        raise _not_offsets(what) from None
    return from_json(value, what=what)


def parse_assignment(text: str, *, what: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError
        found = [(topic, partition) for topic, partitions in value.items() for partition in partitions]
        if not found or any(type(partition) is not int or partition < 0 for _, partition in found):
            raise TypeError
    except (ValueError, TypeError):
        raise ConfigurationError(
            f'{what} takes JSON that names partitions of topics, such as {{"topic": [0, 1]}}'
        ) from None
    return tuple(sorted(set(found)))


def check_complete(given: Offsets, partitions: Iterable[TopicPartition], *, what: str) -> None:
    """As with Spark's Kafka source: who lists offsets lists them for every partition that is read, and no other."""
    wanted = set(partitions)
    if missing := sorted(wanted - given.keys()):
        raise ConfigurationError(
            f"{what} must name every partition that is read; missing: {names(missing)}. "
            f"{EARLIEST} stands for the earliest offset, {LATEST} for the latest"
        )
    if unknown := sorted(given.keys() - wanted):
        raise ConfigurationError(f"{what} names partitions that are not read: {names(unknown)}")


def names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between the two."""
    return sum(max(0, offset - start.get(partition, offset)) for partition, offset in end.items())


def share(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], *, offsets_max: int
) -> Offsets:
    """An end such that at most `offsets_max` lie before it, shared by what each partition has.

    Never more than the limit, and something if there is anything. A partition whose end lies before its start is not
    the business of a limit: its end stays.
    """
    sizes = {
        partition: end[partition] - start.get(partition, end[partition])
        for partition in sorted(end)
        if end[partition] > start.get(partition, end[partition])
    }
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(end)
    parts = {partition: size * offsets_max // total for partition, size in sizes.items()}
    # What rounding left over goes to those that lost most by it.
    left = offsets_max - sum(parts.values())
    by_loss = sorted(sizes, key=lambda partition: (-(sizes[partition] * offsets_max % total), partition))
    for partition in by_loss[:left]:
        parts[partition] += 1
    return {
        partition: start[partition] + parts[partition] if partition in sizes else offset
        for partition, offset in end.items()
    }


def _not_offsets(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} takes JSON with a number for each partition of each topic, such as {_EXAMPLE}"
    )
