"""Reading what lies on disk only to see whether it is still what was written. A piece at a time, in a thread.

Only sealed segments: the active one is young, and its batches were checked when they came. The CRC does not cover a
batch's base offset, length and magic, so these are looked at too.
"""

from __future__ import annotations

from typing import NamedTuple

from flintmq.records.batch import HEADER_SIZE, LENGTH_END, crc_is_right, read_header
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.segment import Segment

_CHUNK_BYTES = 1024 * 1024


class ScrubResult(NamedTuple):
    position: int
    """How far the segment was read; its size at the end."""
    damage: CorruptRange | None = None
    batches: int = 0
    records: int = 0
    next_offset: int = -1
    """The lowest offset that may come at `position`."""
    lost_bytes: int = 0
    """At the end, where no batch could be found."""


def scrub(
    segment: Segment, position: int, *, size: int, expected: int, end_offset: int, limit: int
) -> ScrubResult:
    """Check batches from `position` on, about `limit` bytes of them, up to the first that is damaged.

    `expected` is the lowest offset that may come; the segment ended at `size` bytes and below `end_offset` when
    both were looked at, together, on the loop: one that is active grows meanwhile. Behind a batch that fails
    its CRC one may go on; where there is no batch at all, the rest of the segment is lost.
    """
    if position >= size:
        # An empty segment may have no file yet.
        return ScrubResult(position, None, next_offset=expected)
    file, begun = segment.open(), position
    batches = records = 0
    chunk, start = b"", position
    # The lowest offset that the batch before may have had.
    before = expected

    def lost(first: int | None = None) -> ScrubResult:
        bad = CorruptRange(expected if first is None else first, end_offset)
        return ScrubResult(size, bad, batches, records, end_offset, size - position)

    while position < size and position - begun < limit:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = file.pread(min(_CHUNK_BYTES, size - position), position), position, 0
        if len(chunk) - at < HEADER_SIZE:
            return lost()
        header = read_header(chunk, at)
        if (
            header.length < HEADER_SIZE - LENGTH_END
            or position + header.size > size
            or header.magic != 2
            or not header.base_offset <= header.last_offset < end_offset
        ):
            return lost()
        if header.base_offset < expected:
            # Of two batches that are out of order either may have a wrong offset.
            return lost(min(before, end_offset - 1))
        if at + header.size > len(chunk):
            wanted = min(max(_CHUNK_BYTES, header.size), size - position)
            chunk, start, at = file.pread(wanted, position), position, 0
            if len(chunk) < header.size:
                return lost()
        position += header.size
        if not crc_is_right(memoryview(chunk)[at : at + header.size], header.crc):
            bad = CorruptRange(header.base_offset, header.last_offset + 1)
            # Its own account of how many offsets it has cannot be trusted for what comes next.
            return ScrubResult(position, bad, batches, records, header.base_offset + 1)
        before, expected = expected, header.last_offset + 1
        batches += 1
        records += header.record_count
    return ScrubResult(position, None, batches, records, expected)
