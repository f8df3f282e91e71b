"""One partition of a replay, in a worker: rows of the table become records of the topic again, in their order.

    take the transactional id → how far did it come? → rows in, offset of the group in, commit → the next rows …

Each transaction holds some rows and, as a group's offset of the target partition, the offset in the source up to
which they go. Invariant: whoever writes has taken the transactional id first, and only then looked at the offset; so
nobody else can end a transaction of it any more, and each row is in the topic once, whoever dies. Who reads the topic
committed sees no row of a transaction that was not ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.codec.encode import Rows, encode
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.write.side_topic import GroupOffsets, commit_group_offsets
from flintmq.client.admin.groups import committed_offsets
from flintmq.client.batch_producer import BatchProducer, UncompressedBatch
from flintmq.client.cluster import ClusterClient
from flintmq.client.transaction import OpenedTransaction, begin, end, longest_timeout_ms
from flintmq.lake.audit.comparison import Offsets
from flintmq.lake.audit.planning import PartitionSection
from flintmq.lake.audit.report import AuditProblemKind
from flintmq.lake.audit.table_reader import LakeRows
from flintmq.lake.store.store import Store
from flintmq.lake.tables.table import TableError
from flintmq.records.compression import Codec

logger = logging.getLogger(__name__)

TRANSACTION_BYTES: Final = 32 * 1024 * 1024
_TIMEOUT_MS_MAX: Final = 300_000
"""Of one transaction: who dies in it keeps committed readers waiting for so long, if nobody goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """Can be pickled."""

    sections: tuple[PartitionSection, ...]
    """Of one partition, in order."""
    store: Store
    source: SourceOptions
    topic: str
    """Where the records go."""
    partition: int
    name: str
    """Of the group, and of transactional ids with the partition behind it."""
    origin: str
    """What is replayed, for whoever finds the group's offsets."""
    start_offset: int
    end_offset: int
    since_ms: int | None
    until_ms: int | None
    codec: Codec
    batch_bytes: int
    transaction_bytes: int = TRANSACTION_BYTES
    """Of rows, in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplay:
    """What was done this time, for one partition."""

    partition: int
    rows: int
    begun_at: int
    """The first offset in the source that was not replayed before."""
    transactions: int


def replay_partition(task: ReplayTask) -> PartitionReplay:
    with client_of(task.source) as client:
        client.topic(task.topic)
        return _Replay(task, client).run()


class _Replay:
    def __init__(self, task: ReplayTask, client: ClusterClient) -> None:
        self._task = task
        self._client = client
        self._timeout_ms = min(longest_timeout_ms(client), _TIMEOUT_MS_MAX)

    def run(self) -> PartitionReplay:
        transaction = self._begin()
        # Only now that the id is taken: nobody else changes it any more.
        begun_at = position = self._reached()
        rows = transactions = 0
        for some in _portions(self._rows(position), self._task.transaction_bytes):
            if transactions:
                transaction = self._begin()
            rows += self._write(some, transaction)
            transactions += 1
        return PartitionReplay(
            partition=self._task.partition, rows=rows, begun_at=begun_at, transactions=transactions
        )

    def _begin(self) -> OpenedTransaction:
        name = f"{self._task.name}-{self._task.partition}"
        return begin(self._client, name, timeout_ms=self._timeout_ms)

    def _reached(self) -> int:
        partition = (self._task.topic, self._task.partition)
        committed = committed_offsets(self._client, self._task.name, [partition]).get(partition)
        if committed is None:
            return self._task.start_offset
        if committed.metadata != self._task.origin:
            raise TableError(
                f"The group {self._task.name} belongs to another replay ({committed.metadata}); give this one "
                "another name."
            )
        return max(self._task.start_offset, committed.offset)

    def _rows(self, start: int) -> Iterator[pa.RecordBatch]:
        """Those that are left."""
        for section in self._task.sections:
            ranges = tuple(
                one for one in section.ranges if one.end > start and one.start < self._task.end_offset
            )
            if not ranges:
                continue
            left = PartitionSection(source=section.source, ranges=ranges, is_at_broker=section.is_at_broker)
            for batch in LakeRows(self._task.store, left, _Strict(), required=COLUMNS, sort=False).batches():
                wanted = self._wanted(batch, start)
                if wanted.num_rows:
                    yield wanted

    def _wanted(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        offsets, times = batch.column("offset"), _times_ms(batch)
        is_wanted = pc.and_(
            pc.greater_equal(offsets, start), pc.less(offsets, self._task.end_offset)
        ).to_numpy(zero_copy_only=False)
        if self._task.since_ms is not None:
            is_wanted = is_wanted & (times >= self._task.since_ms)
        if self._task.until_ms is not None:
            is_wanted = is_wanted & (times < self._task.until_ms)
        return batch if is_wanted.all() else batch.filter(pa.array(is_wanted))

    def _write(self, batches: list[pa.RecordBatch], transaction: OpenedTransaction) -> int:
        producer = BatchProducer(self._client, codec=self._task.codec, transaction=transaction)
        partition = (self._task.topic, self._task.partition)
        count = 0
        for batch in batches:
            rows = Rows(batch.column("value"), batch.column("key"), batch.column("headers"), _times_ms(batch))
            here = np.zeros(len(rows), np.int64)
            for one in encode(rows, here, batch_bytes=self._task.batch_bytes):
                assert one.first_timestamp_ms is not None
                records = UncompressedBatch(
                    one.records, one.record_count, one.first_timestamp_ms, one.max_timestamp_ms
                )
                producer.send({partition: records})
            count += batch.num_rows
        producer.flush()
        self._commit_offset(int(batches[-1].column("offset")[-1].as_py()) + 1, transaction)
        for refused in end(self._client, [transaction], committed=True).values():
            raise refused
        return count

    def _commit_offset(self, offset: int, transaction: OpenedTransaction) -> None:
        partition = (self._task.topic, self._task.partition)
        offsets = GroupOffsets(self._task.name, {partition: offset}, {self._task.topic: self._task.origin})
        commit_group_offsets(self._client, transaction, offsets)


class _Strict:
    """Rows that are not where they belong are not written to a topic."""

    def equal(self, count: int) -> None: ...

    def differ(self, kind: AuditProblemKind, offsets: Offsets, column: str | None = None) -> None:
        if len(offsets):
            raise TableError(
                f"The row of offset {offsets[0]} is not of this topic and partition (its {column} is another); "
                "audit the table before it is replayed."
            )


def _portions(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[list[pa.RecordBatch]]:
    """As much as one transaction holds; none is empty. Rows out of order are refused."""
    some: list[pa.RecordBatch] = []
    size = 0
    last = -1
    for batch in batches:
        offsets = batch.column("offset").to_numpy()
        if offsets[0] <= last or (np.diff(offsets) <= 0).any():
            raise TableError(
                f"Rows near offset {offsets[0]} are doubled, or not in their order; audit the table before it is "
                "replayed."
            )
        last = int(offsets[-1])
        some.append(batch)
        size += batch.nbytes
        if size >= bytes_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def _times_ms(batch: pa.RecordBatch) -> Offsets:
    microseconds: Offsets = batch.column("timestamp").cast(pa.int64()).to_numpy()
    return microseconds // 1000
