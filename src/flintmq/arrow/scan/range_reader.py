"""One range of offsets, read over the wire in a worker: record batches of bounded size come out.

    for batch in read_range(wanted, columns, options): …

`task_reader` comes here for what segment files do not give. Invariant: every visible record of the range comes out
once, in order; what is not there any more is reported (`data_loss`) before reading goes on after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.codec.batch_positions import whole_batches
from flintmq.arrow.codec.decode import DecodedRecords, ReadCommittedFilter, as_bytes, decode_in_parts
from flintmq.arrow.scan.data_loss import report_loss, span
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.partition_fetcher import Fetched, PartitionFetcher, TopicGone
from flintmq.client.admin.topics import EARLIEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.errors import CorruptionError, ErrorCode, RequestError


def read_range(
    wanted: OffsetRange, columns: Sequence[str], options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    with client_of(options) as client:
        reader = _RangeReader(client, wanted, columns, options)
        try:
            yield from reader.batches()
        except TopicGone as gone:
            lost = span(wanted.topic, wanted.partition, reader.position, wanted.end)
            report_loss(f"{lost} cannot be read: {gone}", fail=options.fail_on_loss)


class _RangeReader:
    def __init__(
        self, client: ClusterClient, wanted: OffsetRange, columns: Sequence[str], options: SourceOptions
    ) -> None:
        self.position = wanted.start
        """The next offset to read."""
        self._client = client
        self._wanted = wanted
        self._columns = columns
        self._options = options
        self._limits = options.limits
        self._fetcher = PartitionFetcher(client, wanted, read_committed=options.read_committed)
        self._fetch_bytes = min(options.limits.first_fetch_bytes, options.fetch_bytes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        end = self._wanted.end
        empty = 0
        self._fetcher.ask(self.position, self._fetch_bytes)
        while self.position < end:
            fetched = self._take()
            if fetched is not None:
                data = as_bytes(fetched.records or b"")
                empty = 0 if data else empty + 1
                if empty > self._limits.empty_responses_max:
                    self._lose(end, f"the broker has nothing there, and its end is {fetched.high_watermark}")
                    return
                start = self.position
                self._advance(data)
            if self.position < end:
                # Before decoding: the answer travels meanwhile.
                self._fetcher.ask(self.position, self._fetch_bytes)
            if fetched is not None and data:
                yield from self._decoded(data, start, fetched)

    def _take(self) -> Fetched | None:
        """None if the records at the position are gone; then it has moved."""
        try:
            return self._fetcher.take()
        except RequestError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        partition = (self._wanted.topic, self._wanted.partition)
        start = offsets(self._client, [partition], EARLIEST)[partition]
        if start > self.position:
            self._lose(min(start, self._wanted.end), f"they are deleted, the partition begins at {start}")
        else:
            self._lose(self._wanted.end, "the partition ends before them")
        return None

    def _lose(self, until: int, why: str) -> None:
        lost = span(self._wanted.topic, self._wanted.partition, self.position, until)
        report_loss(f"{lost} cannot be read: {why}", fail=self._options.fail_on_loss)
        self.position = until

    def _advance(self, data: bytes) -> None:
        """Move behind the data, and choose how much to fetch next."""
        if not data:
            return
        next_offset, size = whole_batches(data)
        if next_offset <= self.position:
            raise CorruptionError(
                f"{self._wanted.topic}-{self._wanted.partition}: what the broker sent for offset {self.position} "
                "is not a whole record batch that reaches it"
            )
        left = self._wanted.end - next_offset
        # A little more than the rest will take, if records go on as they are.
        expected = left * size // (next_offset - self.position) * 17 // 16
        self._fetch_bytes = min(max(expected, self._limits.fetch_bytes_min), self._options.fetch_bytes)
        self.position = min(next_offset, self._wanted.end)

    def _decoded(self, data: bytes, start: int, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        # The broker names every aborted transaction that touches what it sent, so each answer stands alone.
        aborted = ((one.producer_id, one.first_offset) for one in fetched.aborted_transactions or ())
        wanted = self._wanted._replace(start=start)
        for part in decoded_parts(data, wanted, self._columns, self._options, aborted=aborted):
            yield from bounded_slices(part.batch, self._limits)


def decoded_parts(
    data: bytes | memoryview,
    wanted: OffsetRange,
    columns: Sequence[str],
    options: SourceOptions,
    *,
    aborted: Iterable[tuple[int, int]],
) -> Iterator[DecodedRecords]:
    """The rows of the range among the data. `aborted` are all transactions that are and have records in it."""
    return decode_in_parts(
        data,
        topic=wanted.topic,
        partition=wanted.partition,
        columns=columns,
        start_offset=wanted.start,
        end_offset=wanted.end,
        committed=ReadCommittedFilter(aborted) if options.read_committed else None,
        check_crc=options.check_crc,
        part_bytes=options.limits.decoded_bytes_max,
        part_rows=options.limits.decoded_rows_max,
    )


def bounded_slices(batch: pa.RecordBatch, limits: ScanLimits) -> Iterator[pa.RecordBatch]:
    """Yield slices of bounded rows and about bounded bytes, without copying; nothing of an empty batch."""
    rows = batch.num_rows
    if not rows:
        return
    step = min(limits.batch_rows_max, max(1, rows * limits.batch_bytes_max // max(1, batch.nbytes)))
    for at in range(0, rows, step):
        yield batch.slice(at, step)
