"""Records that could not be decoded, written to a topic: as they were, with headers that say whence and why.

    flintmq.lake.topic, .partition, .offset, .timestamp (milliseconds), .error

All records of one commit are one transaction, which also commits offsets of a group: those say up to where the topic
has them. Invariant: whoever settles takes the transactional id first, so that no one else can end a transaction of
it any more, and only then looks at the offsets. So the records of a commit are in the topic once, whoever dies.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.arrow.codec.arrays import HEADERS
from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.row_writer import RowWriter
from flintmq.client.admin.groups import committed_offsets
from flintmq.client.batch_producer import BatchProducer
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import Coordinated, call_coordinator
from flintmq.client.errors import check
from flintmq.client.transaction import OpenedTransaction, begin, end, longest_timeout_ms
from flintmq.errors import ErrorCode, RequestError
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.piece_writer import Layout
from flintmq.lake.syncing.quarantine import Pending
from flintmq.lake.syncing.row_decoder import ERROR, POISON
from flintmq.lake.tables.file_names import DATA, digest_of
from flintmq.lake.tables.table import TopicProgress
from flintmq.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from flintmq.records.compression import Codec

logger = logging.getLogger(__name__)

PREFIX: Final = "flintmq.lake."
_ROWS_MAX: Final = 10_000
_ATTEMPTS_MAX: Final = 5
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TopicQuarantine:
    def __init__(
        self, client: ClusterClient, topic: str, *, store: Store, group: str, sink: SinkOptions
    ) -> None:
        """The files of poison are in `store` until they are in the topic."""
        self._client = client
        self._topic = topic
        self._store = store
        self._group = group
        self._sink = sink
        self._settled: Pending | None = None

    def layout(self) -> Layout:
        return Layout(store=self._store, schema=POISON)

    def check(self, topic: str, progress: TopicProgress | None) -> None:
        """Nothing is refused: other tables of the topic may share it, and records say where they come from."""

    def settle(self, pending: Pending) -> None:
        if pending == self._settled:
            return
        name = f"flintmq-lake-quarantine-{digest_of(self._store.url, pending.topic)}"
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            # Before the offsets are looked at: they are not known while somebody's transaction may change them.
            transaction = begin(self._client, name, timeout_ms=longest_timeout_ms(self._client))
            try:
                if not self._is_settled(pending):
                    self._write(pending, transaction)
                break
            except RequestError as error:
                # Another sync settles it at the same time.
                if error.code not in _FENCED or attempt == _ATTEMPTS_MAX:
                    raise
        self._store.delete(one.path for one in pending.files)
        self._settled = pending

    def _is_settled(self, pending: Pending) -> bool:
        if self._has(pending):
            return True
        # A group's offsets do not live for ever; but the files are removed only when their records are in the topic.
        first = pending.files[0].path
        return all(entry.path != first for entry in self._store.list(DATA))

    def _has(self, pending: Pending) -> bool:
        places = [(pending.topic, partition) for partition in pending.progress.next_offsets]
        committed = committed_offsets(self._client, self._group, places)
        ours = {
            place[1]: one.offset
            for place, one in committed.items()
            if one.metadata == pending.progress.topic_id
        }
        return pending.is_in(TopicProgress(pending.progress.topic_id, ours))

    def _write(self, pending: Pending, transaction: OpenedTransaction) -> None:
        producer = BatchProducer(self._client, codec=Codec.NONE, transaction=transaction)
        writer = RowWriter(self._client, producer, self._sink, first_partition=0)
        for one in pending.files:
            with self._store.open(one.path) as file:
                for batch in pq.ParquetFile(file).iter_batches(_ROWS_MAX):
                    writer.write(_with_headers(batch))
        writer.finish()
        self._commit_offsets(pending.progress, pending.topic, transaction)
        for refused in end(self._client, [transaction], committed=True).values():
            raise refused
        logger.info(
            "%s: %d records are quarantined in the topic %s", pending.topic, writer.row_count, self._topic
        )

    def _commit_offsets(self, progress: TopicProgress, topic: str, transaction: OpenedTransaction) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=transaction.id,
            group_id=self._group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=progress.topic_id,
                        )
                        for partition, offset in progress.next_offsets.items()
                    ],
                )
            ],
        )

        def judge(response: TxnOffsetCommitResponse) -> None:
            for one in response.topics:
                for partition in one.partitions:
                    check(partition.error_code, what=f"group {self._group}")

        call_coordinator(
            self._client, Coordinated.GROUP, self._group, request, TxnOffsetCommitResponse, judge
        )


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Key, value and headers, with the origin behind the record's own headers."""
    # As numbers: not every time that a record may have is one of Python's.
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    others = batch.select([name for name in POISON.names if name not in ("key", "value", "timestamp")])
    rows = zip(others.to_pylist(), times, strict=True)
    headers = pa.array([_headers(row, time_us // 1000) for row, time_us in rows], HEADERS)
    return pa.RecordBatch.from_arrays(
        [batch.column("key"), batch.column("value"), headers], names=["key", "value", "headers"]
    )


def _headers(row: Mapping[str, Any], timestamp_ms: int) -> list[dict[str, Any]]:
    origin = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": timestamp_ms,
        "error": row[ERROR],
    }
    return [
        *(row["headers"] or ()),
        *({"key": PREFIX + name, "value": str(value).encode()} for name, value in origin.items()),
    ]
