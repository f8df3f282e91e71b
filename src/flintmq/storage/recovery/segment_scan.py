"""Reading a segment's file batch by batch, believing nothing but CRCs.

A scan ends at the first thing that is not a sound batch; what it passed is indexed and its leader epochs are
noted. It changes no file, and does not know what is to become of the remainder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintmq.effects import File
from flintmq.records.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAX_INT32,
    BatchHeader,
    crc_is_right,
    read_header,
)
from flintmq.records.checksum import crc32c
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.segment import Segment

_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The sound beginning of a segment."""

    end_position: int
    end_offset: int
    rest_is_zeros: bool
    """Nothing follows but zeros, or nothing at all: so a preallocated file ends."""
    has_markers: bool
    """Transactions end in it."""


def scan(
    segment: Segment,
    size: int,
    *,
    expected: int,
    following: int | None,
    contiguous: bool,
    epochs: LeaderEpochs,
    chunk_bytes: int,
) -> SegmentScan:
    """Check the batches of a file of `size` bytes, from offset `expected` on, and index them.

    The base offset is outside the CRC. Where nothing was compacted it must be the next one, which finds
    damage to it; else it must not be lower. Below `following` the segment ends. The leader epoch is outside the CRC
    too: it never falls.
    """
    # What the checkpoint says of later epochs may be right, where this is not the end of the log.
    leader_epoch = epochs.epoch_of(expected - 1)
    end_offset = segment.base_offset + MAX_INT32 + 1 if following is None else following
    file = segment.open()
    segment.size = 0
    position, chunk, start = 0, memoryview(b""), 0
    has_markers = False
    while position + HEADER_SIZE <= size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.pread(chunk_bytes, position)), position, 0
            if len(chunk) < HEADER_SIZE:
                break
        header = read_header(chunk, at)
        if not _is_plausible(header, expected, contiguous) or position + header.size > size:
            break
        if header.last_offset >= end_offset or header.leader_epoch < leader_epoch:
            break
        if at + header.size > len(chunk) and header.size <= chunk_bytes:
            chunk, start, at = memoryview(file.pread(chunk_bytes, position)), position, 0
        batch = chunk[at : at + header.size]
        if len(batch) == header.size:
            is_sound = crc_is_right(batch, header.crc)
        else:
            is_sound = _crc_in_chunks(file, position, header.size, chunk_bytes) == header.crc
        if not is_sound:
            break
        leader_epoch = header.leader_epoch
        if leader_epoch > epochs.latest:
            epochs.assign(leader_epoch, expected)
        segment.add_batch(position, header.size, header.last_offset, header.max_timestamp)
        expected = header.last_offset + 1
        position += header.size
        if header.attributes & CONTROL:
            has_markers = True
    return SegmentScan(position, expected, _is_zeros(file, position, size, chunk_bytes), has_markers)


def _is_plausible(header: BatchHeader, expected: int, contiguous: bool) -> bool:
    return (
        header.length >= HEADER_SIZE - LENGTH_END
        and header.magic == _MAGIC
        and header.last_offset_delta >= 0
        and (header.base_offset == expected if contiguous else header.base_offset >= expected)
    )


def _crc_in_chunks(file: File, position: int, size: int, chunk_bytes: int) -> int:
    """The CRC of a batch that is larger than a chunk, or says so: its length is not to be believed yet."""
    crc, at, end = 0, position + CRC_START, position + size
    while at < end:
        chunk = file.pread(min(chunk_bytes, end - at), at)
        if not chunk:
            return -1
        crc = crc32c(chunk, crc)
        at += len(chunk)
    return crc


def _is_zeros(file: File, position: int, end: int, chunk_bytes: int) -> bool:
    while position < end:
        chunk = file.pread(min(chunk_bytes, end - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return not chunk
        position += len(chunk)
    return True
