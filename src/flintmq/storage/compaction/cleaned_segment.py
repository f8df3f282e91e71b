"""A cleaned or repaired segment while it is written beside those that it will replace.

Its files end in `.cleaned`, which no reader and no recovery takes for a part of the log. ORDER: every file is
synced, then the directory, and only then is the segment reported; the swap is the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flintmq.effects import Disk
from flintmq.errors import StorageError
from flintmq.records.batch import MAX_INT32, BatchHeader
from flintmq.storage.aborted_transactions import AbortedTransaction, encode_aborted
from flintmq.storage.compaction.batch_filter import FilteredBatch
from flintmq.storage.compaction.batch_reader import Pace
from flintmq.storage.compaction.job import GroupResult, SegmentInput
from flintmq.storage.compaction.swap import CLEANED
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment

_BUFFER_BYTES: Final = 1024 * 1024
_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


class CleanedSegment:
    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, pace: Pace
    ) -> None:
        self._disk = disk
        self._pace = pace
        # Only its bookkeeping is used: it indexes what it is told of and opens no file.
        self._segment = Segment(
            directory, base_offset, Descriptors(disk, 1), index_interval=index_interval_bytes, created_ms=0
        )
        self._last_offset = base_offset - 1
        self._records = 0
        self._buffered: list[bytes | memoryview] = []
        self._buffered_bytes = 0
        self._written = 0
        self.discard()
        self._file = disk.open(self._path(LOG), create=True)

    def append(self, filtered: FilteredBatch, header: BatchHeader) -> None:
        size = len(filtered.batch)
        position = self._segment.size
        if position + size > MAX_INT32:
            # Delete horizons make records longer; an index cannot point beyond this.
            raise StorageError(f"The cleaned segment {self._path(LOG)} would outgrow {MAX_INT32} bytes.")
        self._buffered.append(filtered.batch)
        self._buffered_bytes += size
        self._segment.add_batch(position, size, header.last_offset, filtered.max_timestamp)
        self._last_offset = header.last_offset
        self._records += filtered.records
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._write()

    def written(self) -> Segment:
        """Write what is buffered; return the segment as it is so far, to be read under its present name."""
        self._write()
        self._segment.file = self._file
        return self._segment

    def finish(
        self, group: Sequence[SegmentInput], aborted: Sequence[AbortedTransaction], records_before: int
    ) -> GroupResult:
        """Everything on stable storage."""
        self._write()
        self._file.sync()
        self._file.close()
        segment = self._segment
        offset_index, time_index = segment.seal()
        self._write_whole(INDEX, offset_index)
        self._write_whole(TIME_INDEX, time_index)
        if aborted:
            self._write_whole(TXN_INDEX, encode_aborted(aborted))
        self._disk.sync_dir(segment.directory)
        return GroupResult(
            bases=tuple(replaced.base_offset for replaced in group),
            size=segment.size,
            first_timestamp=segment.first_timestamp,
            max_timestamp=segment.max_timestamp,
            max_timestamp_offset=segment.max_timestamp_offset,
            index_bytes=max(len(offset_index), len(time_index)),
            last_offset=self._last_offset,
            has_transaction_index=bool(aborted),
            bytes_before=sum(replaced.size for replaced in group),
            records_before=records_before,
            records_after=self._records,
        )

    def discard(self) -> None:
        """Take away what is there of it, now or from a process that died."""
        for suffix in _SUFFIXES:
            if self._disk.exists(self._path(suffix)):
                self._disk.remove(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return self._segment.path(suffix) + CLEANED

    def _write(self) -> None:
        if self._buffered:
            data = b"".join(self._buffered)
            self._pace(len(data))
            self._file.pwrite(data, self._written)
            self._written += len(data)
            self._buffered.clear()
            self._buffered_bytes = 0

    def _write_whole(self, suffix: str, data: bytes) -> None:
        file = self._disk.open(self._path(suffix), create=True)
        try:
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
