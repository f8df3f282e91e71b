"""Sparse indexes of a segment, in Kafka's formats. Pure, but for reading through a File.

Offset index: (offset - base, position) in 8 bytes for a batch every `index.interval.bytes`, the offset being
the last of that batch. Time index: (largest timestamp so far, offset - base of its batch) in 12 bytes.
The active segment's indexes are arrays in memory; a sealed segment's are searched in their files by bisection,
so that ten thousand sealed segments cost no memory.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from flintmq.effects import File

OFFSET_ENTRY: Final = struct.Struct(">Ii")
TIME_ENTRY: Final = struct.Struct(">qI")


class OffsetIndex:
    """Entries in memory, ascending."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def append(self, relative_offset: int, position: int) -> None:
        # ORDER: what `floor` searches comes last, for a thread may be searching.
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def floor(self, relative_offset: int) -> int:
        """The position from which a walk finds the batch that holds the offset."""
        at = bisect_right(self.offsets, relative_offset) - 1
        return self.positions[at] if at >= 0 else 0

    def ceiling(self, position: int) -> int | None:
        """The last relative offset of the first batch of the index that begins at `position` or later."""
        # By the shorter array, for a thread may be searching.
        at = bisect_left(self.positions, position, hi=len(self.offsets))
        return self.offsets[at] if at < len(self.offsets) else None

    def sample(self, relative_offset: int, relative_end: int, count_max: int) -> list[tuple[int, int]]:
        """Return at most `count_max` entries: the one where a walk to the offset begins, and others up to the end.

        As the index grows, most of the sample stays what it was: only every 2nd, 4th, 8th … entry is taken.
        """
        first = max(0, bisect_right(self.offsets, relative_offset) - 1)
        end = bisect_left(self.offsets, relative_end)
        if first >= end or count_max < 1:
            return []
        step = 1
        while True:
            others = range(first - first % step + step, end, step)
            if len(others) < count_max:
                return [(self.offsets[at], self.positions[at]) for at in (first, *others)]
            step *= 2

    def encode(self) -> bytes:
        return b"".join(map(OFFSET_ENTRY.pack, self.offsets, self.positions))

    @classmethod
    def decode(cls, data: bytes) -> OffsetIndex:
        index = cls()
        for offset, position in OFFSET_ENTRY.iter_unpack(data):
            index.append(offset, position)
        return index

    def below(self, position: int) -> OffsetIndex:
        """Return a copy with the entries of batches that begin before `position`."""
        index, count = OffsetIndex(), bisect_left(self.positions, position)
        index.offsets, index.positions = self.offsets[:count], self.positions[:count]
        return index

    def is_sound(self, size: int) -> bool:
        """Ascending, and inside a log file of `size` bytes."""
        offsets, positions = self.offsets, self.positions
        return all(offsets[i] < offsets[i + 1] for i in range(len(offsets) - 1)) and all(
            positions[i] < positions[i + 1] for i in range(len(positions) - 1)
        ) and (not positions or positions[-1] < size)  # fmt: skip


class TimeIndex:
    """Entries in memory, ascending in both columns."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Only a later timestamp of a later batch says anything new."""
        if self.timestamps and (timestamp <= self.timestamps[-1] or relative_offset <= self.offsets[-1]):
            return
        # ORDER: what `floor` searches comes last, for a thread may be searching.
        self.offsets.append(relative_offset)
        self.timestamps.append(timestamp)

    def floor(self, timestamp: int) -> int:
        """The relative offset at or after which the first record of `timestamp` or later is found."""
        at = bisect_left(self.timestamps, timestamp) - 1
        return self.offsets[at] if at >= 0 else 0

    def encode(self) -> bytes:
        return b"".join(map(TIME_ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        index = cls()
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        return index

    def below(self, relative_offset: int) -> TimeIndex:
        """Return a copy with the entries of batches that end before `relative_offset`."""
        index, count = TimeIndex(), bisect_left(self.offsets, relative_offset)
        index.timestamps, index.offsets = self.timestamps[:count], self.offsets[:count]
        return index

    def is_sound(self) -> bool:
        times, offsets = self.timestamps, self.offsets
        return all(times[i] < times[i + 1] and offsets[i] < offsets[i + 1] for i in range(len(times) - 1))


def floor_in_offset_file(file: File, relative_offset: int) -> int:
    """`OffsetIndex.floor` without reading the whole file."""
    low, high = 0, file.size() // OFFSET_ENTRY.size
    position = 0
    while low < high:
        middle = (low + high) // 2
        offset, at = OFFSET_ENTRY.unpack(file.pread(OFFSET_ENTRY.size, middle * OFFSET_ENTRY.size))
        if offset <= relative_offset:
            low, position = middle + 1, at
        else:
            high = middle
    return position


def ceiling_in_offset_file(file: File, position: int) -> int | None:
    """`OffsetIndex.ceiling` without reading the whole file."""
    low, high = 0, file.size() // OFFSET_ENTRY.size
    relative_offset = None
    while low < high:
        middle = (low + high) // 2
        offset, at = OFFSET_ENTRY.unpack(file.pread(OFFSET_ENTRY.size, middle * OFFSET_ENTRY.size))
        if at >= position:
            high, relative_offset = middle, offset
        else:
            low = middle + 1
    return relative_offset


def floor_in_time_file(file: File, timestamp: int) -> int:
    """`TimeIndex.floor` without reading the whole file."""
    low, high = 0, file.size() // TIME_ENTRY.size
    relative_offset = 0
    while low < high:
        middle = (low + high) // 2
        time, offset = TIME_ENTRY.unpack(file.pread(TIME_ENTRY.size, middle * TIME_ENTRY.size))
        if time < timestamp:
            low, relative_offset = middle + 1, offset
        else:
            high = middle
    return relative_offset
