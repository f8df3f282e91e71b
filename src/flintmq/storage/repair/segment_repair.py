"""A sound segment, written beside the damaged one that it will replace.

    while not repair.is_copied:
        gap = repair.advance(limit)           in a thread: copies sound batches up to the next gap
        if gap is not None:
            repair.fill(batches)              in a thread: batches of another replica, as often as it takes
    result = repair.finish()                  in a thread: all of it on stable storage

The damaged segment is only read, and its file stays with those who read from it. The new one becomes a part of the
log by the same swap as a compacted one. ORDER: the segment is sealed and flushed BEFORE, and nobody else rewrites
segments of the log meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flintmq.effects import read_file
from flintmq.errors import StorageError
from flintmq.records.batch import BatchHeader, read_header
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.compaction.batch_filter import BatchOutcome, FilteredBatch
from flintmq.storage.compaction.cleaned_segment import CleanedSegment
from flintmq.storage.compaction.job import GroupResult, SegmentInput
from flintmq.storage.indexes import OFFSET_ENTRY, OffsetIndex
from flintmq.storage.log import Log
from flintmq.storage.recovery.state_replay import replay
from flintmq.storage.repair.sound_batches import Gap, SoundBatch, sound_batches
from flintmq.storage.segment import INDEX, Segment
from flintmq.storage.transaction_markers import markers_in


class SegmentRepair:
    def __init__(self, log: Log, segment: Segment, *, end_offset: int, start_offset: int) -> None:
        """Make it on the loop. The log begins at `start_offset`, on stable storage: no batch below is needed."""
        self.gaps: list[Gap] = []
        """The gaps found so far."""
        self.is_copied = False
        self._segment = segment
        self._disk = log.disk
        self._close_guard = log.close_guard
        self._partition_dir = log.partition_dir
        self._name = log.name
        self._index_interval_bytes = log.config.index_interval_bytes
        self._end_offset = end_offset
        self._start_offset = start_offset
        self._damage_end = max(
            (bad.end_offset for bad in log.corrupt if bad.base_offset < end_offset), default=0
        )
        self._earlier = [one for one in log.segments if one.base_offset < segment.base_offset]
        self._snapshots = log.snapshots.up_to(end_offset)
        self._aborted_markers: set[int] = set()
        """Offsets of markers in batches of other replicas that abort a transaction."""
        self._records = 0
        self._cleaned: CleanedSegment | None = None
        self._left: Iterator[SoundBatch | Gap] = iter(())

    def advance(self, limit: int) -> Gap | None:
        """Copy about `limit` bytes of sound batches, up to the next gap; return the gap if there is one."""
        cleaned, copied = self._cleaned or self._begin(), 0
        for found in self._left:
            if isinstance(found, Gap):
                if found.end_offset > self._start_offset:
                    self.gaps.append(found)
                    return found
                continue
            self._append(cleaned, found.data, found.header)
            copied += found.header.size
            if copied >= limit:
                return None
        self.is_copied = True
        return None

    def fill(self, batches: memoryview) -> None:
        """Add whole batches that lie in the gap which was returned last. The caller has checked them."""
        assert self._cleaned is not None
        position = 0
        while position < len(batches):
            header = read_header(batches, position)
            batch = batches[position : position + header.size]
            if header.is_control:
                self._aborted_markers.update(
                    offset for marker, offset, _ in markers_in(header, batch) if not marker.committed
                )
            self._append(self._cleaned, batch, header)
            position += header.size

    def finish(self) -> GroupResult:
        """Make the new segment durable, under a name that is not the log's yet."""
        cleaned = self._cleaned
        assert cleaned is not None
        aborted = self._aborted(cleaned)
        with self._close_guard.entered() as is_mine:
            if not is_mine:
                raise StorageError(f"{self._name} is gone.")
            group = [SegmentInput(self._segment.base_offset, self._segment.size)]
            return cleaned.finish(group, aborted, self._records)

    def _begin(self) -> CleanedSegment:
        segment = self._segment
        # ORDER: the file is made only while the directory is this log's; another log may have its name later.
        with self._close_guard.entered() as is_mine:
            if not is_mine:
                raise StorageError(f"{self._name} is gone.")
            self._cleaned = CleanedSegment(
                self._disk,
                segment.directory,
                segment.base_offset,
                index_interval_bytes=self._index_interval_bytes,
                pace=_no_pace,
            )
        self._left = sound_batches(
            segment.open(),
            base_offset=segment.base_offset,
            size=segment.size,
            end_offset=self._end_offset,
            indexed=self._indexed(),
            ends_damaged=self._damage_end == self._end_offset,
        )
        return self._cleaned

    def _indexed(self) -> Sequence[int]:
        """Return the positions that the index knows; none if the index is damaged too."""
        index = self._segment.offset_index
        if index is None:
            path = self._segment.path(INDEX)
            data = read_file(self._disk, path) if self._disk.exists(path) else b""
            index = OffsetIndex.decode(data[: len(data) - len(data) % OFFSET_ENTRY.size])
        return index.positions if index.is_sound(self._segment.size) else ()

    def _append(self, cleaned: CleanedSegment, batch: memoryview, header: BatchHeader) -> None:
        self._records += header.record_count
        filtered = FilteredBatch(BatchOutcome.UNCHANGED, batch, header.record_count, header.max_timestamp)
        cleaned.append(filtered, header)

    def _aborted(self, cleaned: CleanedSegment) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers are in the segment.

        They are known, unless the damage was found when the log was opened without the segment's indexes: then those
        with markers in the damaged range are worked out again.
        """
        known = self._segment.aborted
        if self._aborted_markers <= {one.last_offset for one in known}:
            return known
        written = cleaned.written()
        base_offset = written.base_offset
        segments = [*self._earlier, written]
        try:
            replay(
                segments,
                self._snapshots,
                self._partition_dir,
                first_offset=segments[0].base_offset,
                end_offset=self._end_offset,
                scanned={base_offset},
                first_marked=base_offset,
            )
        finally:
            written.file = None
        # A marker of a transaction without records has no entry. What was known stays known: compaction may have
        # removed the records by which it would be found again.
        entries = {one.last_offset: one for one in (*written.aborted, *known)}
        return [entries[offset] for offset in sorted(entries)]


def _no_pace(size: int) -> None:
    """A repair is not slowed down: until it ends a replica is missing."""
