"""Retention: from which offset on a log is kept, by age and by size. Decides, and touches nothing.

Whole segments go, the oldest first, and never one that a reader could still get new records from: all of it must lie
below the high watermark. The active segment goes too if all of it is too old; a new, empty one takes its place.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from flintmq.storage.log import Log
from flintmq.storage.segment import Segment


class RetentionReason(Enum):
    AGE = "age"
    SIZE = "size"


class ExpiredSegments(NamedTuple):
    start_offset: int
    """Where the log should begin."""
    segments: int
    size: int
    """Bytes that go."""
    reason: RetentionReason
    needs_roll: bool
    """The active segment goes too."""


def expired_segments(log: Log, now_ms: int) -> ExpiredSegments | None:
    """Return what retention deletes; None if all is kept, as in logs that are only compacted."""
    if not log.config.deletes or log.truncation is not None:
        return None
    by_age = count_by_age(log, now_ms)
    by_size = count_by_size(log)
    count = max(by_age, by_size)
    if not count:
        return None
    going = log.segments[:count]
    all_go = count == len(log.segments)
    return ExpiredSegments(
        log.end_offset if all_go else log.segments[count].base_offset,
        count,
        sum(segment.size for segment in going),
        RetentionReason.AGE if by_age >= by_size else RetentionReason.SIZE,
        all_go,
    )


def count_by_age(log: Log, now_ms: int) -> int:
    """Count the first segments whose newest record is older than `retention.ms`."""
    limit_ms = log.config.retention_ms
    if limit_ms < 0:
        return 0
    count = 0
    for at, segment in enumerate(log.segments):
        is_active = at + 1 == len(log.segments)
        end = log.end_offset if is_active else log.segments[at + 1].base_offset
        if (is_active and not segment.size) or end > log.high_watermark:
            break
        # One of which compaction left nothing has no age, and keeps nothing behind it.
        if segment.size and now_ms - _age_from(segment) <= limit_ms:
            break
        count += 1
    return count


def count_by_size(log: Log, *, growth: int = 0) -> int:
    """Count the first segments that can go with at least `retention.bytes` left. Never the active one.

    `growth` bytes are taken to be in the log already.
    """
    limit = log.config.retention_bytes
    if limit < 0:
        return 0
    excess = log.size + growth - limit
    count = 0
    for at, segment in enumerate(log.segments[:-1]):
        if excess < segment.size or log.segments[at + 1].base_offset > log.high_watermark:
            break
        excess -= segment.size
        count += 1
    return count


def _age_from(segment: Segment) -> int:
    """Records without any timestamp count from when their segment was made or opened."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
