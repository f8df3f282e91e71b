"""One task read in a worker: segments from their files, everything else over the wire, in order.

    for batch in read_task(task, columns, options): …

Invariant: every visible record of the task's range comes out once, in order, whichever way each part takes. What a
file cannot give, because it is gone, was compacted, belongs to another topic or is damaged, the broker is asked for:
its answer counts, and so do its errors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import Segments, SourceOptions
from flintmq.arrow.scan.range_reader import bounded_slices, decoded_parts, read_range
from flintmq.arrow.scan.segment_file import SegmentChunk, UnusableSegment, open_segment, read_chunks
from flintmq.arrow.scan.segment_planner import FileTask, Task
from flintmq.arrow.worker_gc import freeze_imports
from flintmq.client.admin.segments import SegmentFile
from flintmq.effects import File
from flintmq.errors import CorruptionError

logger = logging.getLogger(__name__)


def read_task(task: Task, columns: Sequence[str], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    if isinstance(task, OffsetRange):
        return read_range(task, columns, options)
    return _TaskReader(task, columns, options).batches()


class _TaskReader:
    def __init__(self, task: FileTask, columns: Sequence[str], options: SourceOptions) -> None:
        self._task = task
        self._wanted = task.wanted
        self._columns = columns
        self._options = options
        self._position = task.wanted.start
        """The next offset to read."""
        self._failures: list[str] = []
        """Why segments, one each, are not read from their files."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for segment in self._task.segments:
                try:
                    file = open_segment(segment, self._wanted.topic_id)
                except UnusableSegment as why:
                    # Left behind the position, for the next fetch to take with what else is to be fetched.
                    self._failures.append(str(why))
                    continue
                with closing(file):
                    yield from self._fetched(max(segment.base_offset, self._task.log_start_offset))
                    yield from self._read(segment, file)
            yield from self._fetched(self._wanted.end)
        finally:
            self._report()

    def _fetched(self, until: int) -> Iterator[pa.RecordBatch]:
        if self._position < until:
            yield from read_range(
                self._wanted._replace(start=self._position, end=until), self._columns, self._options
            )
            self._position = until

    def _read(self, segment: SegmentFile, file: File) -> Iterator[pa.RecordBatch]:
        """What the file gives; if it fails, the position says how far that went."""
        end = min(segment.end_offset, self._wanted.end)
        try:
            for chunk in read_chunks(
                file,
                segment,
                start=self._position,
                end=end,
                chunk_bytes=self._options.limits.chunk_bytes,
            ):
                yield from self._decoded(chunk, end)
        except (UnusableSegment, CorruptionError) as why:
            self._failures.append(str(why))
        else:
            # Nothing may be at the end: compaction and markers leave gaps.
            self._position = end

    def _decoded(self, chunk: SegmentChunk, end: int) -> Iterator[pa.RecordBatch]:
        parts = decoded_parts(
            chunk.data,
            self._wanted._replace(start=self._position, end=end),
            self._columns,
            self._options,
            # Each chunk stands alone: for those that ended before it no marker would ever come.
            aborted=(
                (one.producer_id, one.first_offset)
                for one in self._task.aborted
                if one.first_offset < chunk.next_offset and one.last_offset >= chunk.base_offset
            ),
        )
        for part in parts:
            yield from bounded_slices(part.batch, self._options.limits)
            self._position = part.next_offset

    def _report(self) -> None:
        if self._failures:
            logger.log(
                logging.WARNING if self._options.segments is Segments.ALWAYS else logging.INFO,
                "%s-%d: %d of %d segments were fetched from the broker, not read from their files; the first: %s",
                self._wanted.topic,
                self._wanted.partition,
                len(self._failures),
                len(self._task.segments),
                self._failures[0],
            )
