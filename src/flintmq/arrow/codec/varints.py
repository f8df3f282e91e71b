"""Varints of a payload, many at once.

Eight bytes are loaded from every place in one step, and the numbers are cut out of them by arithmetic on the whole
column: what it costs hardly depends on how long they are or how they are mixed.

Invariant: nothing is read outside the payload, whatever the places say: behind its end there are zeros. Places are
never negative. Numbers come out as they are written, before zigzag: twice what they mean, and odd where that is
negative. This module must not know records.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

WORD_SIZE: Final = 8
_SIZE_MAX_32: Final = 5
_SIZE_MAX_64: Final = 10
_MAX_32: Final = 0xFFFF_FFFF
# What the ninth and the tenth byte may hold of 64 bits.
_TAIL_MAX: Final = 0xFF

# Where a byte of a little-endian word says that the number goes on, and where its seven bits are.
_MORE: Final = np.uint64(0x8080_8080_8080_8080)
_SEVENS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
# By how much groups of seven bits are pushed together: those that stay where they are, and those that are pushed.
_PUSHES: Final = (
    (1, np.uint64(0x007F_007F_007F_007F), np.uint64(0x7F00_7F00_7F00_7F00)),
    (2, np.uint64(0x0000_3FFF_0000_3FFF), np.uint64(0x3FFF_0000_3FFF_0000)),
    (4, np.uint64(0x0000_0000_0FFF_FFFF), np.uint64(0x0FFF_FFFF_0000_0000)),
)


class BadRow(Exception):
    """What is in this row cannot be."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def refuse(bad: Flags) -> None:
    """BadRow names the first row that is marked, if one is."""
    if bad.any():
        raise BadRow(int(bad.argmax()))


class VarintPayload:
    """Bytes that are read at many places at once: at least eight."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self._last = len(self.bytes) - WORD_SIZE
        # One word for every byte of the payload, each overlapping the next.
        self._words: Words = np.ndarray((self._last + 1,), "<u8", buffer=data, strides=(1,))

    def words_at(self, positions: Positions) -> Words:
        """The eight bytes from each place on, the first one lowest."""
        if not len(positions) or positions.max() <= self._last:
            return self._words[positions]
        inside = np.minimum(positions, self._last)
        # A shift by 64 or more leaves nothing, in numpy.
        return self._words[inside] >> (np.minimum(positions - inside, WORD_SIZE) * 8).view(np.uint64)

    def varints_at(self, positions: Positions, *, bits: int) -> tuple[Words, Positions]:
        """The number of up to 32 or 64 bits at each place, and the place behind it; BadRow if one is longer."""
        words = self.words_at(positions)
        numbers, sizes = first_varints(words)
        behind = positions + sizes
        if bits == 32:
            if len(numbers) and (numbers.max() > _MAX_32 or sizes.max() > _SIZE_MAX_32):
                refuse((numbers > _MAX_32) | (sizes > _SIZE_MAX_32))
        elif len(rest := np.flatnonzero((words & _MORE) == _MORE)):
            tails, tail_sizes = first_varints(self.words_at(positions[rest] + WORD_SIZE))
            overlong = np.zeros(len(positions), np.bool_)
            overlong[rest] = (tail_sizes > _SIZE_MAX_64 - WORD_SIZE) | (tails > _TAIL_MAX)
            refuse(overlong)
            numbers[rest] |= tails << np.uint64(7 * WORD_SIZE)
            behind[rest] += tail_sizes
        return numbers, behind


def first_varints(words: Words) -> tuple[Words, npt.NDArray[np.uint8]]:
    """The number that each word begins with, and its size; of one that goes on, the first 56 bits."""
    ends = ~words & _MORE
    # All bits up to the first that ends a number; all of them, if none does.
    within = ends ^ (ends - np.uint64(1))
    sizes: npt.NDArray[np.uint8] = np.bitwise_count(within) >> np.uint8(3)
    bits: Words = words & within & _SEVENS
    longest = sizes.max(initial=1)
    for shift, staying, pushed in _PUSHES:
        if longest <= shift:
            break
        bits = (bits & staying) | ((bits & pushed) >> np.uint64(shift))
    return bits, sizes


def signed(numbers: Words) -> npt.NDArray[np.int64]:
    """Zigzag undone."""
    return (numbers >> 1).view(np.int64) ^ -((numbers & 1).view(np.int64))
