"""The batches of a segment that is to be cleaned, each checked before it is used.

A segment that is cleaned is sealed and was sound once, so anything that is not a sound batch is damage: it is
raised with its place and the offsets that it may have held. This module must not know what the batches are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from flintmq.effects import File
from flintmq.errors import CorruptionError
from flintmq.records.batch import CRC_START, HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from flintmq.records.record import MAGIC
from flintmq.storage.compaction.job import CompactionDamage, SegmentInput

Pace = Callable[[int], object]
"""Told how many bytes were read or are to be written; it may take its time."""

_CHUNK_BYTES: Final = 1024 * 1024


class SegmentBatch(NamedTuple):
    """One sound batch, at `at` in `data` and at `position` in its file."""

    data: bytes
    at: int
    position: int
    header: BatchHeader


class DamagedBatch(CorruptionError):
    def __init__(self, damage: CompactionDamage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


def read_batches(
    file: File, segment: SegmentInput, *, end_offset: int, pace: Pace, from_offset: int = 0
) -> Iterator[SegmentBatch]:
    """All batches of the segment that end at or above `from_offset`. `end_offset` is where the next one begins."""
    expected = segment.base_offset
    position, chunk, start = 0, b"", 0
    while position < segment.size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = _chunk(file, segment, position, _CHUNK_BYTES, pace), position, 0
        if at + HEADER_SIZE > len(chunk):
            raise _damaged(segment, position, expected, end_offset, "The segment ends within a batch.")
        header = read_header(chunk, at)
        if not _is_plausible(header, expected):
            raise _damaged(segment, position, expected, end_offset, "There is something else than a batch.")
        if position + header.size > segment.size:
            raise _damaged(segment, position, expected, end_offset, "The batch goes beyond its segment.")
        if at + header.size > len(chunk):
            size = max(_CHUNK_BYTES, header.size)
            chunk, start, at = _chunk(file, segment, position, size, pace), position, 0
        if header.last_offset >= from_offset:
            if not _checksum_is_right(chunk, at, header):
                after = _next_sound(file, segment, position + header.size, expected)
                raise _damaged(segment, position, expected, after or end_offset, "The batch fails its CRC.")
            yield SegmentBatch(chunk, at, position, header)
        expected = header.last_offset + 1
        position += header.size


def unreadable(segment: SegmentInput, batch: SegmentBatch, error: CorruptionError) -> DamagedBatch:
    """A batch as it was written, whose records make no sense."""
    return DamagedBatch(
        CompactionDamage(
            segment=segment.base_offset,
            position=batch.position,
            first_offset=batch.header.base_offset,
            end_offset=batch.header.last_offset + 1,
            checksum_is_right=True,
            reason=str(error),
        )
    )


def _damaged(
    segment: SegmentInput, position: int, first_offset: int, end_offset: int, reason: str
) -> DamagedBatch:
    return DamagedBatch(
        CompactionDamage(
            segment=segment.base_offset,
            position=position,
            first_offset=first_offset,
            end_offset=max(end_offset, first_offset + 1),
            checksum_is_right=False,
            reason=reason,
        )
    )


def _chunk(file: File, segment: SegmentInput, position: int, size: int, pace: Pace) -> bytes:
    chunk = file.pread(min(size, segment.size - position), position)
    pace(len(chunk))
    return chunk


def _is_plausible(header: BatchHeader, expected: int) -> bool:
    return (
        header.length >= HEADER_SIZE - LENGTH_END
        and header.magic == MAGIC
        and header.base_offset >= expected
        and header.last_offset_delta >= 0
        and header.record_count >= 0
    )


def _checksum_is_right(chunk: bytes, at: int, header: BatchHeader) -> bool:
    batch = memoryview(chunk)[at : at + header.size]
    return len(batch) == header.size and crc32c(batch[CRC_START:]) == header.crc


def _next_sound(file: File, segment: SegmentInput, position: int, expected: int) -> int | None:
    """The base offset of the batch at `position`, if one is there: then the damage ends before it."""
    start = file.pread(HEADER_SIZE, position)
    if len(start) < HEADER_SIZE:
        return None
    header = read_header(start)
    if not _is_plausible(header, expected + 1) or position + header.size > segment.size:
        return None
    batch = file.pread(header.size, position)
    return header.base_offset if _checksum_is_right(batch, 0, header) else None
