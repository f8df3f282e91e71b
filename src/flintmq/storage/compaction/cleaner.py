"""One pass of compaction: the keys of the dirty part are read, then all segments are rewritten, group by group.

`clean` is a generator that stops at every cleaned segment it has finished, so that the broker can put it into the
log before the next one is made; it changes no file of the log itself. Everything before the pass's end is cleaned,
also what was clean before, against the keys of the dirty part. If these do not fit the memory the pass ends at the
last offset that did, and a next one goes on from there.

Invariant: the same segments and the same job give the same bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from flintmq.effects import Disk, read_file
from flintmq.errors import CorruptionError
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted
from flintmq.storage.compaction.batch_filter import (
    BatchFilter,
    BatchOutcome,
    is_whole,
    marker_type,
    offsets_of,
    read_payload,
)
from flintmq.storage.compaction.batch_reader import DamagedBatch, Pace, SegmentBatch, read_batches, unreadable
from flintmq.storage.compaction.cleaned_segment import CleanedSegment
from flintmq.storage.compaction.job import (
    CompactionDamage,
    CompactionJob,
    CompactionProgress,
    CompactionSummary,
    GroupResult,
    SegmentInput,
)
from flintmq.storage.compaction.offset_map import OffsetMap
from flintmq.storage.compaction.segment_groups import SegmentSizes, group_segments
from flintmq.storage.compaction.transactions import CleanedTransactions
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name

_PROGRESS_BYTES: Final = 16 * 1024 * 1024


def clean(
    disk: Disk, job: CompactionJob, pace: Pace = lambda _bytes: None
) -> Iterator[CompactionProgress | GroupResult | CompactionSummary | CompactionDamage]:
    """Carry out the job. The last event is a Summary or a Damage; OSError leaves nothing of the group behind."""
    return _Pass(disk, job, pace).run()


class _Pass:
    def __init__(self, disk: Disk, job: CompactionJob, pace: Pace) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._keys = OffsetMap(
            job.dedupe_bytes,
            job.load_factor,
            first_offset=job.first_dirty_offset,
            end_offset=job.end_offset,
        )
        ends = [segment.base_offset for segment in job.segments[1:]]
        # A segment may go on beyond the job's end; what it holds from there on is not touched.
        self._ends = dict(zip(job.segments, [*ends, job.end_offset], strict=False))
        self._results: list[GroupResult] = []

    def run(self) -> Generator[CompactionProgress | GroupResult | CompactionSummary | CompactionDamage]:
        job = self._job
        damage: CompactionDamage | None = None
        try:
            aborted = self._aborted()
            latest_offset = yield from self._map_keys(CleanedTransactions(aborted, job.first_dirty_offset))
            keyless = yield from self._rewrite(aborted, latest_offset)
        except DamagedBatch as error:
            damage = error.damage
        if damage is not None:
            yield damage
            return
        results = self._results
        yield CompactionSummary(
            next_dirty_offset=latest_offset + 1,
            keys=self._keys.size,
            key_capacity=self._keys.capacity,
            bytes_before=sum(result.bytes_before for result in results),
            bytes_after=sum(result.size for result in results),
            records_before=sum(result.records_before for result in results),
            records_after=sum(result.records_after for result in results),
            keyless_records=keyless,
        )

    def _aborted(self) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self._job.segments:
            path = self._path(segment.base_offset, TXN_INDEX)
            if self._disk.exists(path):
                found += decode_aborted(read_file(self._disk, path))
        return found + list(self._job.aborted)

    # ---- the keys of the dirty part

    def _map_keys(self, transactions: CleanedTransactions) -> Generator[CompactionProgress, None, int]:
        """Fill the key map; answers with the last offset that it speaks for."""
        job = self._job
        latest_offset = job.first_dirty_offset - 1
        dirty = [segment for segment in job.segments if self._ends[segment] > job.first_dirty_offset]
        done, total = 0, sum(segment.size for segment in dirty)
        for segment in dirty:
            told = 0
            for batch in self._batches(segment, from_offset=job.first_dirty_offset):
                if batch.header.base_offset >= job.end_offset:
                    break
                try:
                    last_that_fit = self._map_batch(batch, transactions)
                except CorruptionError as error:
                    raise unreadable(segment, batch, error) from None
                if last_that_fit is not None:
                    return max(latest_offset, last_that_fit)
                latest_offset = batch.header.last_offset
                if batch.position - told >= _PROGRESS_BYTES:
                    told = batch.position
                    yield CompactionProgress(phase="keys", bytes_done=done + told, bytes_total=total)
            # Offsets are missing where a log was compacted: up to the next segment there is nothing more to know.
            latest_offset = self._ends[segment] - 1
            done += segment.size
        yield CompactionProgress(phase="keys", bytes_done=total, bytes_total=total)
        return latest_offset

    def _map_batch(self, batch: SegmentBatch, transactions: CleanedTransactions) -> int | None:
        """None, or where not all records fit, the offset of the last with a key that did; -1 if none did."""
        header = batch.header
        if header.is_control:
            transactions.pass_marker(header, marker_type(read_payload(batch.data, batch.at, header).columns))
            return None
        if transactions.pass_data(header):
            return None
        columns = read_payload(batch.data, batch.at, header, with_places=False).columns
        keys = columns.keys
        first = self._job.first_dirty_offset
        if header.base_offset >= first and is_whole(header):
            refused = self._keys.put_run(keys, header.base_offset)
            if refused is None:
                for number in columns.tombstones:
                    self._keys.mark_special(header.base_offset + number)
                return None
            offsets = offsets_of(header, columns)
        else:
            offsets = offsets_of(header, columns)
            skipped = sum(offset < first for offset in offsets)
            keys, offsets = keys[skipped:], offsets[skipped:]
            refused = self._keys.put_all(keys, offsets)
        if refused is None:
            return None
        fitting = (offset for offset, key in zip(offsets[:refused], keys, strict=False) if key is not None)
        return max(fitting, default=-1)

    # ---- the rewriting

    def _rewrite(
        self, aborted: Sequence[AbortedTransaction], latest_offset: int
    ) -> Generator[CompactionProgress | GroupResult, None, int]:
        """Clean everything that begins in the pass; answers with the number of records without a key."""
        job = self._job
        segments = {s.base_offset: s for s in job.segments if s.base_offset <= latest_offset}
        transactions = CleanedTransactions(aborted, min(segments, default=0))
        batch_filter = BatchFilter(
            keys=self._keys,
            latest_offset=latest_offset,
            end_offset=job.end_offset,
            transactions=transactions,
            producers=job.producers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        groups = group_segments(
            [self._sizes(segment) for segment in segments.values()],
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            end_offset=job.end_offset,
        )
        done, total = 0, sum(segment.size for segment in segments.values())
        for sizes in groups:
            group = [segments[part.base_offset] for part in sizes]
            result = yield from self._rewrite_group(group, batch_filter, transactions, done, total)
            self._results.append(result)
            done += result.bytes_before
            yield CompactionProgress(phase="records", bytes_done=done, bytes_total=total)
            yield result
        return batch_filter.keyless

    def _rewrite_group(
        self,
        group: Sequence[SegmentInput],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        done: int,
        total: int,
    ) -> Generator[CompactionProgress, None, GroupResult]:
        job = self._job
        cleaned = CleanedSegment(
            self._disk,
            job.directory,
            group[0].base_offset,
            index_interval_bytes=job.index_interval_bytes,
            pace=self._pace,
        )
        is_finished = False
        try:
            records = 0
            for segment in group:
                told = 0
                for batch in self._batches(segment):
                    try:
                        filtered = batch_filter.apply(batch.data, batch.at, batch.header)
                    except CorruptionError as error:
                        raise unreadable(segment, batch, error) from None
                    records += batch.header.record_count
                    if filtered.outcome is not BatchOutcome.DROPPED:
                        cleaned.append(filtered, batch.header)
                    if batch.position - told >= _PROGRESS_BYTES:
                        told = batch.position
                        yield CompactionProgress(phase="records", bytes_done=done + told, bytes_total=total)
                done += segment.size
            result = cleaned.finish(group, transactions.still_indexed, records)
            transactions.still_indexed.clear()
            is_finished = True
            return result
        finally:
            if not is_finished:
                cleaned.discard()

    def _batches(self, segment: SegmentInput, *, from_offset: int = 0) -> Iterator[SegmentBatch]:
        file = self._disk.open(self._path(segment.base_offset, LOG), writable=False)
        try:
            yield from read_batches(
                file, segment, end_offset=self._ends[segment], pace=self._pace, from_offset=from_offset
            )
        finally:
            file.close()

    def _sizes(self, segment: SegmentInput) -> SegmentSizes:
        return SegmentSizes(
            segment.base_offset,
            segment.size,
            self._size(segment.base_offset, INDEX),
            self._size(segment.base_offset, TIME_INDEX),
        )

    def _size(self, base_offset: int, suffix: str) -> int:
        path = self._path(base_offset, suffix)
        return self._disk.size(path) if self._disk.exists(path) else 0

    def _path(self, base_offset: int, suffix: str) -> str:
        return f"{self._job.directory}/{file_name(base_offset, suffix)}"
