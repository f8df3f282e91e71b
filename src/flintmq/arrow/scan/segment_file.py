"""A segment's file on this machine: opened, proven to be the one that was planned, read in chunks.

    with closing(open_segment(segment, topic_id)) as file:
        for chunk in read_chunks(file, segment, start=17, end=40): …

Invariant: either these are the bytes that the broker described, or UnusableSegment says why not, and the reader
continues over the wire from where it was. A file that is open may be removed or replaced: its bytes stay. The active
segment's file may grow meanwhile; nothing beyond the described size is read. Nothing is mapped into memory, where a
file that is cut would kill the process. Knows batches by their headers only.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter
from typing import Final, NamedTuple

from flintmq.arrow.codec.batch_positions import are_contiguous, whole_batches
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.client.admin.segments import IndexEntry, SegmentFile
from flintmq.effects import File, read_file
from flintmq.effects.real import RealDisk
from flintmq.errors import FlintError
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.records.record import MAGIC
from flintmq.storage.durability.flush import METADATA_FILE, decode_metadata
from flintmq.storage.indexes import floor_in_offset_file
from flintmq.storage.segment import INDEX, LOG

_DISK: Final = RealDisk()
_READ_BYTES_MIN: Final = 64 * 1024
_last_offset: Final = attrgetter("last_offset")


class UnusableSegment(FlintError):
    """This segment cannot be read from its file, or not from here on; the message says why."""


class SegmentChunk(NamedTuple):
    data: bytes
    """Whole batches, and perhaps a part of another one."""
    size: int
    """Of the whole batches."""
    base_offset: int
    """Of the first of them."""
    next_offset: int


def open_segment(segment: SegmentFile, topic_id: bytes) -> File:
    """Open the file if it may still be the segment that the broker described."""
    owner = f"{os.path.dirname(segment.path)}/{METADATA_FILE}"
    try:
        file = _DISK.open(segment.path, writable=False)
        # ORDER: after the file is open. A topic's directory is deleted as a whole, so if this still names the old
        # topic, the file was the old topic's too.
        found_id = decode_metadata(read_file(_DISK, owner))
    except OSError as error:
        raise UnusableSegment(f"{error.filename}: {error.strerror}") from error
    size = file.size()
    if found_id == topic_id and (size == segment.size or (segment.is_active and size > segment.size)):
        return file
    file.close()
    if found_id != topic_id:
        raise UnusableSegment(f"{owner} names another topic")
    raise UnusableSegment(f"{segment.path} has {size} bytes, not {segment.size}: it was replaced")


def read_chunks(
    file: File, segment: SegmentFile, *, start: int, end: int, chunk_bytes: int = ScanLimits().chunk_bytes
) -> Iterator[SegmentChunk]:
    """The batches that hold the offsets from `start` on and below `end`, and a few around them."""
    position, offset = _start(file, segment, start)
    while position < segment.size:
        chunk = _chunk(file, segment, position, min(chunk_bytes, _expected_bytes(segment, offset, end)))
        position += chunk.size
        if segment.is_active:
            _check_active(segment, chunk, offset, position)
        offset = chunk.next_offset
        if offset > start:
            yield chunk
        if offset >= end:
            return


def _expected_bytes(segment: SegmentFile, offset: int, end: int) -> int:
    """Return a little more than the offsets up to `end` take, if records are like the rest of the segment."""
    offsets = max(1, segment.end_offset - segment.base_offset)
    return max(0, end - offset) * segment.size // offsets * 17 // 16 + _READ_BYTES_MIN


def _check_active(segment: SegmentFile, chunk: SegmentChunk, offset: int, position: int) -> None:
    """Check that a chunk which ends at `position` is of the segment that was described.

    Its size proves little, for a file that replaced it may be larger. But a segment that was never compacted has no
    gaps, and the described size is where the described end is. Of a compacted segment nothing is yielded but batches
    without a gap before or between them, and those are what the broker has for their offsets too.
    """
    is_at_end = position == segment.size
    ends_well = (
        chunk.next_offset == segment.end_offset if is_at_end else chunk.next_offset < segment.end_offset
    )
    if not ends_well or chunk.base_offset != offset or not are_contiguous(chunk.data, chunk.size):
        raise UnusableSegment(
            f"{segment.path} is not as it was described up to byte {position}: it was replaced"
        )


def _chunk(file: File, segment: SegmentFile, position: int, chunk_bytes: int) -> SegmentChunk:
    """Read about `chunk_bytes`, at least one batch."""
    left = segment.size - position
    data = _read(file, segment, position, min(chunk_bytes, left))
    whole = whole_batches(data)
    if not whole.size and len(data) >= HEADER_SIZE and len(data) < (size := read_header(data).size) <= left:
        data = _read(file, segment, position, size)
        whole = whole_batches(data)
    if not whole.size:
        raise UnusableSegment(f"{segment.path} holds something else than a batch at byte {position}")
    return SegmentChunk(data, whole.size, read_header(data).base_offset, whole.next_offset)


def _read(file: File, segment: SegmentFile, position: int, size: int) -> bytes:
    try:
        data = file.pread(size, position)
    except OSError as error:
        raise UnusableSegment(
            f"{segment.path} cannot be read at byte {position}: {error.strerror}"
        ) from error
    if len(data) < size:
        raise UnusableSegment(f"{segment.path} was cut to {position + len(data)} bytes")
    return data


def _start(file: File, segment: SegmentFile, offset: int) -> tuple[int, int]:
    """Return where a walk to the offset may begin, and the base offset of the batch there."""
    beginning = 0, segment.base_offset
    if offset <= segment.base_offset:
        return beginning
    entry = _described_entry(segment, offset) if segment.is_active else None
    position = _indexed_position(segment, offset) if entry is None else entry.position
    if not 0 < position <= segment.size - HEADER_SIZE:
        return beginning
    header = read_header(_read(file, segment, position, HEADER_SIZE))
    if header.magic != MAGIC or not segment.base_offset <= header.base_offset <= offset:
        return beginning
    if entry is not None and header.last_offset != entry.last_offset:
        return beginning
    return position, header.base_offset


def _described_entry(segment: SegmentFile, offset: int) -> IndexEntry:
    """Return the last index entry at or below the offset, or one for the start of the file."""
    at = bisect_right(segment.index, offset, key=_last_offset)
    return segment.index[at - 1] if at else IndexEntry(segment.base_offset, 0)


def _indexed_position(segment: SegmentFile, offset: int) -> int:
    """Return the position by the index file.

    That may be missing, or be the index of a file that has replaced this one: it is believed if a batch is there that
    begins at the offset or before. Else the walk begins at the start of the file.
    """
    try:
        with closing(_DISK.open(segment.path.removesuffix(LOG) + INDEX, writable=False)) as index:
            return floor_in_offset_file(index, offset - segment.base_offset)
    except (OSError, struct.error):
        return 0
