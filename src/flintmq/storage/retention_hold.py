"""Records that somebody still needs: whether retention is about to take them, and how far it is held back. Pure.

Who needs them is not known here: only the first offset that is needed. Retention is held back by `flint.lake.hold`
bytes at most, so that one who never comes cannot fill the disk. Compaction and deletions by clients are not asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flintmq.storage.log import Log
from flintmq.storage.retention import ExpiredSegments, count_by_age, count_by_size

_NEAR: Final = 4
"""Retention is near while less than one part in so many of `retention.ms` or `retention.bytes` is left."""


class HeldRetention(NamedTuple):
    """What remains of a decision of retention when needed segments are held back."""

    expired: ExpiredSegments | None
    """What goes now; None if nothing does."""
    held_segments: int
    held_bytes: int
    """What would go, and is kept."""
    lost_records: int
    """Offsets that go although they are needed."""


def is_endangered(log: Log, now_ms: int, needed_offset: int) -> bool:
    """Return whether retention is about to delete a segment that holds a needed record.

    That is so if retention would delete it now, or after another quarter of `retention.ms`, or when the log has grown
    by another quarter of `retention.bytes`.
    """
    config = log.config
    if not config.deletes:
        return False
    near_by_age = count_by_age(log, now_ms + max(0, config.retention_ms) // _NEAR)
    near_by_size = count_by_size(log, growth=max(0, config.retention_bytes) // _NEAR)
    return max(near_by_age, near_by_size) > _first_needed(log, needed_offset)


def hold_back(log: Log, expired: ExpiredSegments, needed_offset: int) -> HeldRetention:
    """Keep segments that hold needed records, the newest `flint.lake.hold` bytes of those that would go."""
    count = expired.segments
    needed = min(_first_needed(log, needed_offset), count)
    held_bytes = sum(segment.size for segment in log.segments[needed:count])
    going = needed
    while going < count and held_bytes > log.config.flint_lake_hold:
        held_bytes -= log.segments[going].size
        going += 1
    if going < count:
        expired_now = _first(log, going, expired) if going else None
        start_offset = log.segments[going].base_offset
    else:
        expired_now, start_offset = expired, expired.start_offset
    lost = max(0, start_offset - max(needed_offset, log.start_offset)) if going > needed else 0
    return HeldRetention(expired_now, count - going, held_bytes, lost)


def _first(log: Log, count: int, expired: ExpiredSegments) -> ExpiredSegments:
    """Of expired segments only so many, which are not all."""
    return ExpiredSegments(
        start_offset=log.segments[count].base_offset,
        segments=count,
        size=sum(segment.size for segment in log.segments[:count]),
        reason=expired.reason,
        needs_roll=False,
    )


def _first_needed(log: Log, needed_offset: int) -> int:
    """Return the index of the first segment that holds a needed record; the number of segments if none does."""
    segments = log.segments
    for at, segment in enumerate(segments):
        end_offset = segments[at + 1].base_offset if at + 1 < len(segments) else log.end_offset
        if segment.size and end_offset > needed_offset:
            return at
    return len(segments)
