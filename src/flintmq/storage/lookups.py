"""Finding a record by its time, in one segment. Reads the disk, and may decompress: for a thread.

The indexes lead to the batches that may hold it; only their records tell. A batch whose records cannot be read, or
unpack to more than is reasonable, is answered for by its header: a client that starts there misses nothing.
Meanwhile the loop may append to the segment, or take it away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flintmq.effects import Disk
from flintmq.errors import RequestError
from flintmq.model.batch import LOG_APPEND_TIME, BatchHeader
from flintmq.model.records import records_of
from flintmq.storage.segment import Segment

# What a batch may unpack to when its records must be seen: in recovery, and to find one by its time.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
SEARCHED_BYTES_MAX = 16 * 1024 * 1024


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_since(
    segment: Segment, disk: Disk, *, timestamp: int, start_offset: int, check: Callable[[BatchHeader], object]
) -> TimestampOffset | None:
    """The first record of `timestamp` or later from `start_offset` on; `check` may refuse a batch."""
    for position, header in segment.since(disk, timestamp, start_offset):
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
