"""Where the batches of a piece of the log are, by the lengths in their headers. Pure.

Each length leads to the next batch, so this is a loop over batches, which is compiled where it can be. This module
must not know what is inside a batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from flintmq.records.batch import HEADER_SIZE, LENGTH_END
from flintmq.records.record import MAGIC

_LENGTH: Final = 8
_MAGIC_POSITION: Final = 16
_LAST_OFFSET_DELTA: Final = 23


class BatchPositions(NamedTuple):
    starts: list[int]
    has_garbage: bool
    """Whether something follows them that is not a batch of magic 2."""


class WholeBatches(NamedTuple):
    next_offset: int
    """Behind the last whole batch; 0 if there is none."""
    size: int


def find_batches(data: bytes) -> BatchPositions:
    """Find the whole batches up to one that is cut off."""
    starts: list[int] = []
    position: i64 = 0
    end: i64 = len(data)
    while position + HEADER_SIZE <= end:
        length: i64 = i64(read_i32_be(data, position + _LENGTH))
        if data[position + _MAGIC_POSITION] != MAGIC or length < HEADER_SIZE - LENGTH_END:
            return BatchPositions(starts, True)
        after: i64 = position + length + LENGTH_END
        if after > end:
            break
        starts.append(position)
        position = after
    return BatchPositions(starts, False)


def whole_batches(data: bytes) -> WholeBatches:
    """Measure what of a fetch's data are whole batches, by their headers; nonsense is left to the decoder."""
    last: i64 = -1
    position: i64 = 0
    end: i64 = len(data)
    while position + HEADER_SIZE <= end:
        length: i64 = i64(read_i32_be(data, position + _LENGTH))
        after: i64 = position + length + LENGTH_END
        if length < HEADER_SIZE - LENGTH_END or after > end:
            break
        last, position = position, after
    if last < 0:
        return WholeBatches(0, 0)
    next_offset = read_i64_be(data, last) + i64(read_i32_be(data, last + _LAST_OFFSET_DELTA)) + 1
    return WholeBatches(next_offset, position)


def are_contiguous(data: bytes, size: int) -> bool:
    """Return whether no offset is missing between the whole batches in the first `size` bytes."""
    expected: i64 = -1
    position: i64 = 0
    end: i64 = size
    while position < end:
        base_offset: i64 = read_i64_be(data, position)
        if base_offset != expected and expected >= 0:
            return False
        expected = base_offset + i64(read_i32_be(data, position + _LAST_OFFSET_DELTA)) + 1
        position += i64(read_i32_be(data, position + _LENGTH)) + LENGTH_END
    return True
