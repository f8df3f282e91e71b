"""Keeps records that could not be decoded in a topic: unchanged, with headers that name their origin and the error.

    flintmq.lake.topic, .partition, .offset, .timestamp (milliseconds), .error, .table

The records of one commit are one transaction of `arrow.write.side_topic`, which also commits the offsets of a group.
The group belongs to one table, and the metadata of its offsets name the files whose records the transaction holds.
Invariant: the files of a pending quarantine are deleted only when the topic has their records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.arrow.codec.arrays import HEADERS
from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.side_topic import (
    ROWS_PER_BATCH_MAX,
    GroupOffsets,
    SideTopic,
    SideTransaction,
    read_group_offsets,
)
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import Consumer
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.quarantine import PendingQuarantine
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import ERROR, POISON
from flintmq.lake.tables.data_file import DATA, digest_of
from flintmq.lake.tables.table import Table, TableState, TopicProgress

logger = logging.getLogger(__name__)

PREFIX: Final = "flintmq.lake."


def quarantine_group(shared: str, location: str) -> str:
    """Return the group that says which records of one table are in the topic.

    `shared` is the name that earlier versions gave it: tables of one topic had the same.
    """
    return f"{shared}-{digest_of(location)}"


class TopicQuarantine:
    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        table: str,
        group_location: str,
        store: Store,
        quarantine_table: Table,
        shared_group: str,
        sink: SinkOptions,
    ) -> None:
        """`table` is the location of the table that records are missing from.

        The group is named by `group_location`, which a rename of the table does not change.

        `store` holds the files of undecodable records until the topic has them. `quarantine_table` has the records of
        commits from before the quarantine was a topic, if it was a table then; the same files belong to it.
        """
        self._client = client
        self._topic = topic
        self._table = table
        self._store = store
        self._quarantine_table = quarantine_table
        self._shared_group = shared_group
        self._group = quarantine_group(shared_group, group_location)
        self._sink = sink
        self._completed: PendingQuarantine | None = None

    def layout(self) -> FileLayout:
        return FileLayout(store=self._store, schema=POISON)

    def check(self, topic: str, progress: TopicProgress | None) -> None:
        """Accept every progress: other tables may share the topic, as headers name each record's origin."""

    def complete_rebuild(self, state: TableState, topic: str) -> None:
        """Nothing to do: what a rebuild finds is pending like what a sync finds, and records stay in a topic."""

    def complete_replay(self, state: TableState) -> None:
        """Nothing to do: records are not replayed from a topic."""

    def complete(self, pending: PendingQuarantine) -> None:
        if pending == self._completed:
            return
        kept = self._quarantine_table.state()
        if kept is not None and pending.is_in(kept.progress.get(pending.topic)):
            self._completed = pending
            return
        side_topic = SideTopic(
            self._client,
            self._sink,
            transactional_id=f"flintmq-lake-quarantine-{digest_of(self._store.url, pending.topic)}",
        )
        side_topic.attempt(lambda transaction: self._write_missing(pending, transaction))
        self._store.delete(one.path for one in pending.files)
        self._completed = pending

    def _write_missing(self, pending: PendingQuarantine, transaction: SideTransaction) -> None:
        if self._is_complete(pending, transaction):
            return
        count = transaction.commit(
            self._batches(pending),
            [GroupOffsets(self._group, _next_offsets(pending), {pending.topic: _metadata(pending)})],
        )
        logger.info("%s: %d records are quarantined in the topic %s", pending.topic, count, self._topic)

    def _is_complete(self, pending: PendingQuarantine, transaction: SideTransaction) -> bool:
        if self._has_committed(self._group, pending, _metadata(pending)):
            return True
        # A group's offsets expire; but the files are deleted only when their records are in the topic.
        first = pending.files[0].path
        if all(entry.path != first for entry in self._store.list(DATA)):
            return True
        # An earlier version may have died after its transaction. Its group was of all tables of the topic: only the
        # records that this table's producer wrote tell whether the transaction was this table's.
        return self._has_committed(
            self._shared_group, pending, pending.progress.topic_id
        ) and self._has_written(pending, transaction.producer_id)

    def _has_committed(self, group: str, pending: PendingQuarantine, metadata: str) -> bool:
        committed = read_group_offsets(self._client, group, _next_offsets(pending), {pending.topic: metadata})
        found = {partition: offset for (_, partition), offset in committed.items()}
        return pending.is_in(TopicProgress(pending.progress.topic_id, found))

    def _has_written(self, pending: PendingQuarantine, producer_id: int) -> bool:
        """Whether the topic has the first of these records from this producer."""
        batch = next(self._batches(pending))
        wanted = set(_origin(batch.column("headers")[0].as_py()).items())
        topic = self._client.topic(self._topic)
        partitions = [(self._topic, one) for one in topic.partitions]
        starts = offsets(self._client, partitions, EARLIEST)
        ends = offsets(self._client, partitions, LATEST, read_committed=True)
        consumer = Consumer(
            self._client,
            topic,
            {one[1]: starts[one] for one in partitions if starts[one] < ends[one]},
            read_committed=True,
            producer_id=producer_id,
        )
        while consumer.positions:
            for _, record in consumer.poll():
                found = {key: value or b"" for key, value in record.headers}
                if wanted <= set(found.items()):
                    return True
            for partition, position in list(consumer.positions.items()):
                if position >= ends[self._topic, partition]:
                    consumer.drop(partition)
        return False

    def _batches(self, pending: PendingQuarantine) -> Iterator[pa.RecordBatch]:
        for one in pending.files:
            with self._store.open(one.path) as file:
                for batch in pq.ParquetFile(file).iter_batches(ROWS_PER_BATCH_MAX):
                    yield _with_headers(batch, self._table)


def _next_offsets(pending: PendingQuarantine) -> dict[tuple[str, int], int]:
    return {(pending.topic, partition): offset for partition, offset in pending.progress.next_offsets.items()}


def _metadata(pending: PendingQuarantine) -> str:
    """Return what the offsets of the transaction that holds these records say."""
    return f"{pending.progress.topic_id} {digest_of([one.path for one in pending.files])}"


def _with_headers(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Return key, value and headers, with the origin after the record's own headers."""
    # As numbers: Python's datetime cannot hold every timestamp of a record.
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    others = batch.select([name for name in POISON.names if name not in ("key", "value", "timestamp")])
    rows = zip(others.to_pylist(), times, strict=True)
    headers = pa.array([_headers(row, time_us // 1000, table) for row, time_us in rows], HEADERS)
    return pa.RecordBatch.from_arrays(
        [batch.column("key"), batch.column("value"), headers], names=["key", "value", "headers"]
    )


def _headers(row: Mapping[str, Any], timestamp_ms: int, table: str) -> list[dict[str, Any]]:
    origin = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": timestamp_ms,
        "error": row[ERROR],
        "table": table,
    }
    return [
        *(row["headers"] or ()),
        *({"key": PREFIX + name, "value": str(value).encode()} for name, value in origin.items()),
    ]


def _origin(headers: list[dict[str, Any]]) -> dict[str, bytes]:
    """Return those of the headers that every version wrote, and that say which record it is."""
    names = {PREFIX + name for name in ("topic", "partition", "offset")}
    return {one["key"]: one["value"] for one in headers if one["key"] in names}
