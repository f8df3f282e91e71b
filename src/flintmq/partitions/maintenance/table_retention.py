"""Retention and lake tables: what it is about to delete, or holds back, that a table does not have yet.

    watch = TableRetention()
    expired, lost = watch.decide(partition, expired, now_ms=now_ms, needed=needed)     what goes now
    watch.endangered, watch.held_bytes                                                 for metrics

Invariant: nothing goes that the rules of `storage.retention_hold` keep. A table whose progress is not known yet is
taken to have nothing. Lines are bounded: one for each partition when something changes and then one an hour, and
not more than a few in one pass.
This module must not know groups: who tells how far tables are is the caller's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from flintmq.partitions.partition import Partition
from flintmq.records.topic_partition import TopicPartition
from flintmq.storage.log import Log
from flintmq.storage.retention import ExpiredSegments, expired_segments
from flintmq.storage.retention_hold import hold_back, is_endangered

logger = logging.getLogger(__name__)

_AGAIN_MS: Final = 3_600_000
_LINES_MAX: Final = 20
_LATE_ADVICE: Final = "sync it, or keep more with retention.ms, retention.bytes or flint.lake.hold"


class TableOffset(NamedTuple):
    """How far the slowest table of a partition is."""

    offset: int
    """The first one that it does not have."""
    table: str
    """Its location."""
    group: str
    """The group whose committed offset says so."""

    def __str__(self) -> str:
        return f"the table {self.table} (group {self.group})"


TableOffsets = Mapping[TopicPartition, TableOffset]

UNKNOWN: Final = TableOffset(0, "", "")
"""Of every partition, until it is known how far tables are."""


class TableRisk(Enum):
    """What retention means for a table, from bad to worse."""

    ENDANGERED = "is about to delete"
    HELD = "is held back for"
    LOSING = "deletes"


class _Watched(NamedTuple):
    risk: TableRisk
    held_bytes: int
    logged_ms: int


class TableRetention:
    def __init__(self) -> None:
        self._watched: dict[tuple[bytes, int], _Watched] = {}
        """By the topic's id and the partition."""
        self._lines = 0

    @property
    def endangered(self) -> int:
        """Partitions of which retention is about to delete, holds back or deletes what a table does not have."""
        return len(self._watched)

    @property
    def held_bytes(self) -> int:
        return sum(one.held_bytes for one in self._watched.values())

    def begin(self) -> None:
        """Begin a pass over partitions."""
        self._lines = 0

    def keep_only(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that are not here any more."""
        present = {(one.topic_id, one.index) for one in partitions}
        for key in [key for key in self._watched if key not in present]:
            del self._watched[key]

    def decide(
        self,
        partition: Partition,
        expired: ExpiredSegments | None,
        *,
        now_ms: int,
        needed: TableOffset | None,
    ) -> tuple[ExpiredSegments | None, int]:
        """Return what goes now of what retention wants to delete, and how many records of it a table does not have.

        `needed` is None if there is no table.
        """
        log, key = partition.log, (partition.topic_id, partition.index)
        if needed is None:
            self._watched.pop(key, None)
            return expired, 0
        held_bytes = lost = 0
        if expired is not None:
            expired, _, held_bytes, lost = hold_back(log, expired, needed.offset)
        if needed is UNKNOWN:
            return expired, 0
        if lost:
            self._note(key, TableRisk.LOSING, held_bytes, now_ms, _losing_text(log, needed, lost))
        elif held_bytes:
            self._note(key, TableRisk.HELD, held_bytes, now_ms, _held_text(log, needed, held_bytes))
        elif is_endangered(log, now_ms, needed.offset):
            self._note(key, TableRisk.ENDANGERED, 0, now_ms, _endangered_text(log, needed))
        elif self._watched.pop(key, None) is not None:
            logger.info("%s: retention is no longer near what %s does not have", log.name, needed)
        return expired, lost

    def _note(self, key: tuple[bytes, int], risk: TableRisk, held_bytes: int, now_ms: int, text: str) -> None:
        before = self._watched.get(key)
        is_news = before is None or before.risk is not risk or not 0 <= now_ms - before.logged_ms < _AGAIN_MS
        if is_news:
            self._lines += 1
            if self._lines <= _LINES_MAX:
                logger.log(logging.ERROR if risk is TableRisk.LOSING else logging.WARNING, "%s", text)
            elif self._lines == _LINES_MAX + 1:
                logger.warning("more partitions are near the end of retention; their lines are left out")
        logged_ms = now_ms if is_news or before is None else before.logged_ms
        self._watched[key] = _Watched(risk, held_bytes, logged_ms)


def table_risk(log: Log, now_ms: int, needed: TableOffset) -> str | None:
    """Say what retention means for the slowest table of a log as it is now; None if nothing is near."""
    if needed is UNKNOWN or not is_endangered(log, now_ms, needed.offset):
        return None
    expired = expired_segments(log, now_ms)
    if expired is not None:
        held = hold_back(log, expired, needed.offset)
        if held.lost_records:
            return _losing_text(log, needed, held.lost_records)
        if held.held_bytes:
            return _held_text(log, needed, held.held_bytes)
    return _endangered_text(log, needed)


def _endangered_text(log: Log, needed: TableOffset) -> str:
    return (
        f"{log.name}: retention is about to delete records from offset {max(needed.offset, log.start_offset)} on, "
        f"which {needed} does not have; {_LATE_ADVICE}"
    )


def _held_text(log: Log, needed: TableOffset, held_bytes: int) -> str:
    return (
        f"{log.name}: retention is held back for {needed}, which lacks records from offset {needed.offset} on: "
        f"{held_bytes} bytes of at most {log.config.flint_lake_hold} (flint.lake.hold)"
    )


def _losing_text(log: Log, needed: TableOffset, lost: int) -> str:
    bound = log.config.flint_lake_hold
    reached = f"flint.lake.hold is reached ({bound} bytes), and " if bound else ""
    return (
        f"{log.name}: {reached}retention deletes {lost} records from offset "
        f"{max(needed.offset, log.start_offset)} on, which {needed} does not have; {_LATE_ADVICE}"
    )
