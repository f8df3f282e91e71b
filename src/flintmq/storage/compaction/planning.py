"""Which part of a log may be compacted, and whether it is worth it. Decides, and touches nothing.

     clean            dirty, cleanable            not yet
├──────────────┼──────────────────────────┼──────────────────┤
start     first dirty offset          end offset       active segment …

Not yet: the active segment, the one in which an open transaction began or from which on not all is visible, and those
from the first on that has records younger than `min.compaction.lag.ms`. As in Apache Kafka, whole segments only.
Worth it: the dirty part is a larger share than `min.cleanable.dirty.ratio`, or holds a record older than
`max.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flintmq.storage.log import Log
from flintmq.storage.segment import segment_index


class CleanableRange(NamedTuple):
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_range(log: Log, now_ms: int, *, min_lag_ms: int | None = None) -> CleanableRange:
    """Return what could be compacted now."""
    config = log.config
    lag_ms = config.min_compaction_lag_ms if min_lag_ms is None else min_lag_ms
    first_dirty = log.first_dirty_offset
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    end = log.segments[segment_index(log.segments, log.last_stable_offset)].base_offset
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for at, segment in enumerate(log.segments[:-1]):
        following = log.segments[at + 1].base_offset
        if following <= first_dirty:
            clean_bytes += segment.size
            continue
        if segment.base_offset >= end:
            break
        if lag_ms > 0 and segment.max_timestamp > now_ms - lag_ms:
            end = min(end, segment.base_offset)
            break
        dirty_bytes += segment.size
        if 0 <= segment.first_timestamp < now_ms - config.max_compaction_lag_ms:
            is_overdue = True
    return CleanableRange(first_dirty, max(end, first_dirty), clean_bytes, dirty_bytes, is_overdue)


def cleaning_due(log: Log, now_ms: int) -> CleanableRange | None:
    """Return what should be compacted now; None if that is not worth a pass."""
    if not log.config.compacts or log.offline is not None or not log.is_created or log.truncation is not None:
        return None
    found = cleanable_range(log, now_ms)
    if not found.dirty_bytes or found.end_offset <= found.first_dirty_offset:
        return None
    if found.is_overdue or found.ratio > log.config.min_cleanable_dirty_ratio:
        return found
    return None


def next_log_to_clean(logs: Iterable[Log], now_ms: int) -> Log | None:
    """Return the log that needs compaction most; those with overdue records come first."""
    best: tuple[bool, float] | None = None
    chosen = None
    for log in logs:
        found = cleaning_due(log, now_ms)
        if found is not None and (best is None or (found.is_overdue, found.ratio) > best):
            best, chosen = (found.is_overdue, found.ratio), log
    return chosen
