"""A complete segment as a file on this machine: opened, proven to be the one that was planned, read in chunks.

    with closing(open_segment(segment, topic_id)) as file:
        for chunk in read_chunks(file, segment, start=17, end=40): …

Invariant: either these are the bytes that the broker told of, or Unusable says why not, and whoever reads goes on
over the wire from where it was. A file that is open may be removed or replaced: its bytes stay. Nothing is mapped
into memory, where a file that is cut would kill the process. Knows batches by their headers only.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from flintmq.arrow.codec.batch_positions import whole_batches
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.client.admin.segments import SegmentFile
from flintmq.effects import File, read_file
from flintmq.effects.real import RealDisk
from flintmq.errors import FlintError
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.records.record import MAGIC
from flintmq.storage.durability.flush import METADATA_FILE, decode_metadata
from flintmq.storage.indexes import floor_in_offset_file
from flintmq.storage.segment import INDEX, LOG

_DISK: Final = RealDisk()


class UnusableSegment(FlintError):
    """This segment cannot be read from its file, or not from here on; the message says why."""


class SegmentChunk(NamedTuple):
    data: memoryview
    """Whole batches."""
    base_offset: int
    """Of the first of them."""
    next_offset: int


def open_segment(segment: SegmentFile, topic_id: bytes) -> File:
    """The file, if it is still the segment that the broker told of."""
    owner = f"{os.path.dirname(segment.path)}/{METADATA_FILE}"
    try:
        file = _DISK.open(segment.path, writable=False)
        # ORDER: after the file is open. A topic's folder goes as a whole, so if this is still the old topic's name
        # for it, the file was the old topic's too.
        found_id = decode_metadata(read_file(_DISK, owner))
    except OSError as error:
        raise UnusableSegment(f"{error.filename}: {error.strerror}") from error
    size = file.size()
    if found_id == topic_id and size == segment.size:
        return file
    file.close()
    if found_id != topic_id:
        raise UnusableSegment(f"{owner} names another topic")
    raise UnusableSegment(f"{segment.path} has {size} bytes, not {segment.size}: it was replaced")


def read_chunks(
    file: File, segment: SegmentFile, *, start: int, end: int, chunk_bytes: int = ScanLimits().chunk_bytes
) -> Iterator[SegmentChunk]:
    """The batches that hold the offsets from `start` on and below `end`, and a few around them."""
    position = _start_position(file, segment, start)
    while position < segment.size:
        chunk = _chunk(file, segment, position, chunk_bytes)
        if chunk.next_offset > start:
            yield chunk
        if chunk.next_offset >= end:
            return
        position += len(chunk.data)


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
    return SegmentChunk(memoryview(data)[: whole.size], read_header(data).base_offset, whole.next_offset)


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


def _start_position(file: File, segment: SegmentFile, offset: int) -> int:
    """Where a walk to the offset may begin, by the index.

    That may be missing, or be the index of a file that has replaced this one: what it says is believed if a batch is
    there that begins at the offset or before. Else the walk begins at the start of the file.
    """
    if offset <= segment.base_offset:
        return 0
    try:
        with closing(_DISK.open(segment.path.removesuffix(LOG) + INDEX, writable=False)) as index:
            position = floor_in_offset_file(index, offset - segment.base_offset)
    except (OSError, struct.error):
        return 0
    if not 0 < position <= segment.size - HEADER_SIZE:
        return 0
    header = read_header(_read(file, segment, position, HEADER_SIZE))
    return position if header.magic == MAGIC and segment.base_offset <= header.base_offset <= offset else 0
