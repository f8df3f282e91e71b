"""One segment: a `.log` file of batches as on the wire, and its two sparse indexes.

Invariant: `size` bytes of the file are whole, sound batches in ascending offsets; what lies beyond `size`
(a failed write, preallocated zeros) does not exist for readers. A segment knows positions, not policies.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import Final

from flintmq.effects import Buffer, Disk, File, read_file
from flintmq.errors import CorruptionError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, read_header
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetIndex,
    TimeIndex,
    ceiling_in_offset_file,
    floor_in_offset_file,
    floor_in_time_file,
)

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
CUT: Final = ".cut"
"""Holds the size at which a truncation cut the segment's `.log`, whose file may still be longer."""
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX, CUT)
"""ORDER: the log is removed first. Without it the others mean nothing; without `.cut` the log is longer."""
NAME_DIGITS: Final = 20
"""Files are named by an offset of so many digits, and a suffix."""

# A walk begins with little, for it mostly ends at the first or second batch, and takes more where batches are small.
_WALK_BYTES_FIRST, _WALK_BYTES_MAX = 256, 16 * 1024
_COPY_BYTES: Final = 1024 * 1024


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the last segment that begins at or before `offset`; 0 if none does."""
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


class FileRange:
    """Bytes of a log file on their way to a socket. Holding it keeps the descriptor open."""

    __slots__ = ("base_offset", "file", "position", "size")

    def __init__(self, file: File, position: int, size: int, base_offset: int = -1) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.base_offset = base_offset
        """Of the segment."""

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)


class Segment:
    __slots__ = (
        "_descriptors",
        "_index_interval",
        "_since_index",
        "aborted",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "index_bytes",
        "is_cut",
        "jitter_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "removed",
        "size",
        "time_index",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        directory: str,
        base_offset: int,
        descriptors: Descriptors,
        *,
        index_interval: int,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        """How much earlier than `segment.ms` this one is followed by the next (`segment.jitter.ms`)."""
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.file: File | None = None
        self.used = False
        self.removed = False
        """Set when its files go: whoever works on them in a thread leaves them alone from then on."""
        # In memory while the segment is active; None once it is sealed and its indexes are in files.
        self.offset_index: OffsetIndex | None = OffsetIndex()
        self.time_index: TimeIndex | None = TimeIndex()
        self.aborted: list[AbortedTransaction] = []
        """Those whose markers are in this segment."""
        self.index_bytes = 0
        """The size of the larger index file, were it written now."""
        self.is_cut = False
        """Whether the file goes on after `size`, with batches that a truncation cut off."""
        self._descriptors = descriptors
        self._index_interval = index_interval
        self._since_index = 0

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def open(self, *, create: bool = False) -> File:
        if self.removed:
            # A compacted segment may have its name by now.
            raise FileNotFoundError(errno.ENOENT, "the segment was taken away", self.path(LOG))
        self.used = True
        return self.file or self._descriptors.open(self, self.path(LOG), create=create)

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. On OSError nothing has changed but bytes beyond `size`."""
        self.used = True
        position = self.size
        (self.file or self.open()).pwrite(batch, position)
        self.add_batch(position, len(batch), last_offset, max_timestamp)

    def add_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index a batch that was written at `position`. Recovery rebuilds the indexes with it too."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._since_index > self._index_interval:
            assert self.offset_index is not None
            assert self.time_index is not None
            self.offset_index.append(last_offset - self.base_offset, position)
            if self.max_timestamp >= 0:
                self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.set_indexes(self.offset_index, self.time_index)
            self._since_index = 0
        self._since_index += size
        self.size = position + size

    def set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Continue with indexes that a clean shutdown left in files, or with empty ones."""
        self.offset_index, self.time_index = offset_index, time_index
        # One entry is kept free in the time index, for the one that sealing adds.
        self.index_bytes = max(
            len(offset_index.offsets) * OFFSET_ENTRY.size, (len(time_index.timestamps) + 1) * TIME_ENTRY.size
        )

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the batches from `position` on.

        The headers are trusted but for a length that leads nowhere: CorruptionError.
        """
        end = self.size if end is None else end
        if position + HEADER_SIZE > end:
            return
        file = self.open()
        chunk, start, chunk_bytes = b"", position, _WALK_BYTES_FIRST
        while position + HEADER_SIZE <= end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                if at <= len(chunk):
                    chunk_bytes = min(2 * chunk_bytes, _WALK_BYTES_MAX)
                chunk, start, at = file.pread(min(chunk_bytes, end - position), position), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            header = read_header(chunk, at)
            if header.length < HEADER_SIZE - LENGTH_END:
                raise CorruptionError(
                    f"{self.path(LOG)} holds something else than a batch at byte {position}."
                )
            yield position, header
            position += header.length + LENGTH_END

    def locate(self, disk: Disk, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is ≥ `offset`."""
        relative = offset - self.base_offset
        # Looked at once: a thread may be here while the loop drops the index.
        index = self.offset_index
        if relative <= 0:
            start = 0
        elif index is not None:
            start = index.floor(relative)
        else:
            file = disk.open(self.path(INDEX), writable=False)
            try:
                start = floor_in_offset_file(file, relative)
            finally:
                file.close()
        for position, header in self.walk(start):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def offset_after(self, disk: Disk, position: int) -> int | None:
        """An offset that no batch that begins before `position` reaches; None if the index tells of none."""
        index = self.offset_index
        if index is not None:
            relative = index.ceiling(position)
        else:
            file = disk.open(self.path(INDEX), writable=False)
            try:
                relative = ceiling_in_offset_file(file, position)
            finally:
                file.close()
        return None if relative is None else self.base_offset + relative

    def batches_since(
        self, disk: Disk, timestamp: int, from_offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Iterate over batches from `from_offset` on whose headers claim a timestamp ≥ `timestamp`."""
        index = self.time_index
        if index is not None:
            relative = index.floor(timestamp)
        else:
            file = disk.open(self.path(TIME_INDEX), writable=False)
            try:
                relative = floor_in_time_file(file, timestamp)
            finally:
                file.close()
        start = self.locate(disk, max(self.base_offset + relative, from_offset))
        if start is None:
            return
        for position, header in self.walk(start[0]):
            if header.max_timestamp >= timestamp:
                yield position, header

    def add_aborted(
        self, producer_id: int, first_offset: int, marker_offset: int, first_unstable_offset: int | None
    ) -> None:
        """Note that a marker in this segment ended a transaction whose records count for nothing."""
        stable = marker_offset + 1 if first_unstable_offset is None else first_unstable_offset
        self.aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable))

    def seal(self) -> tuple[bytes, bytes]:
        """No more batches come: the contents for the index files. The arrays stay until `drop_indexes`."""
        assert self.offset_index is not None
        assert self.time_index is not None
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return self.offset_index.encode(), self.time_index.encode()

    def rewrite(self, start: int) -> None:
        """Make pages dirty again that a failed fsync left marked clean, so that the next sync writes them."""
        file = self.open()
        for position in range(start, self.size, _COPY_BYTES):
            file.pwrite(file.pread(min(_COPY_BYTES, self.size - position), position), position)

    def become_cut(self, whole: Segment, size: int, end_offset: int) -> None:
        """Take over the first `size` bytes of `whole`, which end before `end_offset`, and its file.

        The indexes stay those of `whole` until `cut_indexes`: what they say of the kept batches is right.
        """
        self.size = size
        self.created_ms, self.jitter_ms = whole.created_ms, whole.jitter_ms
        self.first_timestamp = whole.first_timestamp
        self.max_timestamp, self.max_timestamp_offset = whole.max_timestamp, whole.max_timestamp_offset
        self.offset_index, self.time_index = whole.offset_index, whole.time_index
        self.index_bytes = whole.index_bytes
        self.aborted = [one for one in whole.aborted if one.last_offset < end_offset]
        self.is_cut = True

    def cut_indexes(self, disk: Disk, end_offset: int) -> None:
        """Drop from the indexes what lies from `end_offset` on; find the largest timestamp again."""
        offsets, times = self.offset_index, self.time_index
        if offsets is None or times is None:
            offsets = OffsetIndex.decode(read_file(disk, self.path(INDEX)))
            times = TimeIndex.decode(read_file(disk, self.path(TIME_INDEX)))
        offsets, times = offsets.below(self.size), times.below(end_offset - self.base_offset)
        timestamp, at = -1, self.base_offset
        if times.timestamps:
            timestamp, at = times.timestamps[-1], self.base_offset + times.offsets[-1]
        for _, header in self.walk(offsets.positions[-1] if offsets.positions else 0):
            if header.max_timestamp > timestamp:
                timestamp, at = header.max_timestamp, header.last_offset
        self.max_timestamp, self.max_timestamp_offset = timestamp, at
        self.set_indexes(offsets, times)

    def drop_indexes(self) -> None:
        """The index files are written: search those from now on."""
        self.offset_index = None
        self.time_index = None
