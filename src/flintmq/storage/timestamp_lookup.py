"""Finding a record by its time. Reads the disk, and may decompress: for a thread.

The indexes lead to the batches that may hold it; only their records tell. A batch whose records cannot be read, or
unpack to more than is reasonable, is answered for by its header: a client that starts there misses nothing.
Meanwhile the loop may append to a segment, or take it away: then the search begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.effects import Disk
from flintmq.errors import CorruptionError, LogOffline, RequestError, StorageError
from flintmq.records.batch import LOG_APPEND_TIME, BatchHeader
from flintmq.records.limits import SEARCHED_BYTES_MAX
from flintmq.records.record import records_of
from flintmq.storage.log import Log
from flintmq.storage.reader import refuse_corrupt
from flintmq.storage.segment import Segment

_LOOKUPS_MAX: Final = 10


class _SegmentRemoved(Exception):
    """A segment was removed while it was searched."""


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_time(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is ≥ `timestamp`."""

    def search() -> TimestampOffset | None:
        for segment in list(log.segments):
            if segment.max_timestamp >= timestamp:
                found = _search(log, segment, timestamp)
                if found is not None:
                    return found
        return None

    return _look_up(log, search)


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record that has the largest timestamp."""

    def search() -> TimestampOffset | None:
        best = max(list(log.segments), key=lambda segment: segment.max_timestamp)
        return _search(log, best, best.max_timestamp) if best.max_timestamp >= 0 else None

    return _look_up(log, search)


def _look_up(log: Log, search: Callable[[], TimestampOffset | None]) -> TimestampOffset | None:
    for _ in range(_LOOKUPS_MAX):
        if log.offline is not None:
            raise LogOffline(log.offline)
        try:
            return search()
        except _SegmentRemoved:
            pass
    raise StorageError(f"{log.name} changes too fast to be searched.")


def _search(log: Log, segment: Segment, timestamp: int) -> TimestampOffset | None:
    try:
        found = _first_since(
            segment,
            log.disk,
            timestamp=timestamp,
            start_offset=log.start_offset,
            check=lambda header: refuse_corrupt(log, header.base_offset, header.last_offset),
        )
    except (OSError, CorruptionError):
        if segment.removed or segment not in log.segments:
            raise _SegmentRemoved from None
        raise
    if segment.removed:
        # Its indexes may have been those of the segment that has its name now.
        raise _SegmentRemoved
    return found


def _first_since(
    segment: Segment, disk: Disk, *, timestamp: int, start_offset: int, check: Callable[[BatchHeader], object]
) -> TimestampOffset | None:
    """The first record of `timestamp` or later from `start_offset` on; `check` may refuse a batch."""
    for position, header in segment.batches_since(disk, timestamp, start_offset):
        check(header)
        if header.attributes & LOG_APPEND_TIME:
            return TimestampOffset(
                header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch
            )
        data = segment.open().pread(header.size, position)
        try:
            # A header may promise a time that none of its records has: then the next batch is asked.
            for record in records_of(memoryview(data), limit=SEARCHED_BYTES_MAX):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        except RequestError:
            return TimestampOffset(
                header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch
            )
    return None
