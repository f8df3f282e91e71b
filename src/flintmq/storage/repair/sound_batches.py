"""What is left of a damaged segment: its sound batches, and the gaps between them. Changes nothing.

A batch is sound if its CRC is right and its offsets fit. The CRC does not cover base offset, length and magic. A
length that leads nowhere costs the batches up to the next position that the index knows; of two batches that are out
of order either may have a wrong base offset, so both are taken for damaged. Compaction leaves holes between sound
batches, which are no gaps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from flintmq.effects import File
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, crc_is_right, read_header

_CHUNK_BYTES: Final = 1024 * 1024
_MAGIC: Final = 2


class SoundBatch(NamedTuple):
    data: memoryview
    header: BatchHeader


class Gap(NamedTuple):
    """Offsets whose batches are damaged: the first, and the one after the last."""

    start_offset: int
    end_offset: int


def sound_batches(
    file: File,
    *,
    base_offset: int,
    size: int,
    end_offset: int,
    indexed: Sequence[int] = (),
    ends_damaged: bool = False,
) -> Iterator[SoundBatch | Gap]:
    """Return the sound batches in `size` bytes of a segment's file, and the gaps between them, in order.

    The segment holds the offsets from `base_offset` to below `end_offset`. `indexed` are positions at which batches
    begin, ascending. `ends_damaged` says that offsets which are missing at the end are damaged, and no hole.
    """
    return _Scan(file, base_offset, size, end_offset, indexed).run(ends_damaged)


class _Scan:
    def __init__(
        self, file: File, base_offset: int, size: int, end_offset: int, indexed: Sequence[int]
    ) -> None:
        self._file = file
        self._base_offset = base_offset
        self._size = size
        self._end_offset = end_offset
        self._indexed = indexed
        self._chunk = memoryview(b"")
        self._chunk_start = 0

    def run(self, ends_damaged: bool) -> Iterator[SoundBatch | Gap]:
        position, expected = 0, self._base_offset
        # The last batch is held back until the next one shows that its base offset is right.
        held: SoundBatch | None = None
        held_from, is_after_damage = expected, False
        while position < self._size:
            batch = self._batch_at(position)
            if batch is not None and batch.header.base_offset >= expected:
                yield from _released(held, held_from, is_after_damage)
                held, held_from, is_after_damage = batch, expected, False
            else:
                start = expected
                if batch is not None and held is not None:
                    start = held_from
                else:
                    yield from _released(held, held_from, is_after_damage)
                held = None
                position, batch = self._next_sound(position, start)
                if batch is None:
                    break
                held, held_from, is_after_damage = batch, start, True
            expected = batch.header.last_offset + 1
            position += batch.header.size
        else:
            yield from _released(held, held_from, is_after_damage)
            if ends_damaged and expected < self._end_offset:
                yield Gap(expected, self._end_offset)
            return
        if start < self._end_offset:
            yield Gap(start, self._end_offset)

    def _next_sound(self, position: int, start_offset: int) -> tuple[int, SoundBatch | None]:
        """Find the first sound batch after the damage at `position`."""
        while (position := self._next_candidate(position)) < self._size:
            batch = self._batch_at(position)
            if batch is not None and batch.header.base_offset >= start_offset:
                return position, batch
        return position, None

    def _next_candidate(self, position: int) -> int:
        """Return where the next batch may begin: where the length of this one leads, or where the index says."""
        bound = self._bound(position)
        start = self._read(position, HEADER_SIZE)
        if start is not None and HEADER_SIZE <= read_header(start).size < bound - position:
            return position + read_header(start).size
        return bound

    def _bound(self, position: int) -> int:
        """Return a position that a batch which begins at `position` cannot go beyond."""
        at = bisect_right(self._indexed, position)
        return self._indexed[at] if at < len(self._indexed) else self._size

    def _batch_at(self, position: int) -> SoundBatch | None:
        start = self._read(position, HEADER_SIZE)
        if start is None:
            return None
        header = read_header(start)
        if (
            header.length < HEADER_SIZE - LENGTH_END
            or header.magic != _MAGIC
            or not self._base_offset <= header.base_offset <= header.last_offset < self._end_offset
            or position + header.size > self._bound(position)
        ):
            return None
        data = self._read(position, header.size)
        return None if data is None or not crc_is_right(data, header.crc) else SoundBatch(data, header)

    def _read(self, position: int, size: int) -> memoryview | None:
        """Return bytes of the file; None if it ends before them."""
        at = position - self._chunk_start
        if at < 0 or at + size > len(self._chunk):
            wanted = min(max(_CHUNK_BYTES, size), self._size - position)
            self._chunk, self._chunk_start, at = memoryview(self._file.pread(wanted, position)), position, 0
        found = self._chunk[at : at + size]
        return found if len(found) == size else None


def _released(held: SoundBatch | None, held_from: int, is_after_damage: bool) -> Iterator[SoundBatch | Gap]:
    if held is not None:
        if is_after_damage and held_from < held.header.base_offset:
            yield Gap(held_from, held.header.base_offset)
        yield held
