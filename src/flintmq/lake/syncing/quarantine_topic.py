"""Keeps records that could not be decoded in a topic: unchanged, with headers that name their origin and the error.

    flintmq.lake.topic, .partition, .offset, .timestamp (milliseconds), .error

The records of one commit are one transaction of `arrow.write.side_topic`, which also commits the offsets of a group.
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
from flintmq.client.cluster import ClusterClient
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.quarantine import PendingQuarantine
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import ERROR, POISON
from flintmq.lake.tables.data_file import DATA, digest_of
from flintmq.lake.tables.table import TopicProgress

logger = logging.getLogger(__name__)

PREFIX: Final = "flintmq.lake."


class TopicQuarantine:
    def __init__(
        self, client: ClusterClient, topic: str, *, store: Store, group: str, sink: SinkOptions
    ) -> None:
        """`store` holds the files of undecodable records until the topic has them."""
        self._client = client
        self._topic = topic
        self._store = store
        self._group = group
        self._sink = sink
        self._completed: PendingQuarantine | None = None

    def layout(self) -> FileLayout:
        return FileLayout(store=self._store, schema=POISON)

    def check(self, topic: str, progress: TopicProgress | None) -> None:
        """Accept every progress: other tables may share the topic, as headers name each record's origin."""

    def complete(self, pending: PendingQuarantine) -> None:
        if pending == self._completed:
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
        if self._is_complete(pending):
            return
        progress = pending.progress
        offsets = {(pending.topic, partition): offset for partition, offset in progress.next_offsets.items()}
        count = transaction.commit(
            self._batches(pending),
            [GroupOffsets(self._group, offsets, {pending.topic: progress.topic_id})],
        )
        logger.info("%s: %d records are quarantined in the topic %s", pending.topic, count, self._topic)

    def _is_complete(self, pending: PendingQuarantine) -> bool:
        progress = pending.progress
        committed = read_group_offsets(
            self._client,
            self._group,
            [(pending.topic, partition) for partition in progress.next_offsets],
            {pending.topic: progress.topic_id},
        )
        next_offsets = {partition: offset for (_, partition), offset in committed.items()}
        if pending.is_in(TopicProgress(progress.topic_id, next_offsets)):
            return True
        # A group's offsets expire; but the files are deleted only when their records are in the topic.
        first = pending.files[0].path
        return all(entry.path != first for entry in self._store.list(DATA))

    def _batches(self, pending: PendingQuarantine) -> Iterator[pa.RecordBatch]:
        for one in pending.files:
            with self._store.open(one.path) as file:
                for batch in pq.ParquetFile(file).iter_batches(ROWS_PER_BATCH_MAX):
                    yield _with_headers(batch)


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return key, value and headers, with the origin after the record's own headers."""
    # As numbers: Python's datetime cannot hold every timestamp of a record.
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
