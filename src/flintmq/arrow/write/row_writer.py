"""Rows as Spark gives them, on their way into topics: columns to destinations, destinations to batches, batches out.

Rows are gathered until they make batches worth sending, then encoded all at once and sent in rounds: one batch of
each partition in one request. Invariant: rows of one partition keep their order, and no more rows are held than
`GATHER_BYTES`, one Arrow batch and what is in flight. This module must not know Spark or transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.arrow.codec.encode import EncodedPayload, Rows, content_sizes, encode
from flintmq.arrow.codec.partitioner import NO_KEY, Spread, partitions_of_keys
from flintmq.arrow.write.options import SinkOptions
from flintmq.client.admin.topics import describe_topic_settings
from flintmq.client.batch_producer import BatchProducer, UncompressedBatch
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.errors import ConfigurationError
from flintmq.records.batch import HEADER_SIZE
from flintmq.records.compression import Codec
from flintmq.records.topic_partition import TopicPartition

GATHER_BYTES: Final = 4 * 1024 * 1024
REQUEST_BYTES: Final = 8 * 1024 * 1024
"""A request takes no more batches once it has so many bytes."""
_SLICE_BYTES: Final = 64 * 1024 * 1024
"""A larger Arrow batch is halved: lengths in Arrow have 32 bits."""
_DEFAULT_MESSAGE_BYTES: Final = 1024 * 1024

Indexes = npt.NDArray[np.int64]


class _Topic:
    """A topic that is written to: its partitions as destinations, which are numbered from `base` on."""

    def __init__(self, name: str, base: int, count: int, *, batch_bytes: int, first: int) -> None:
        self.name = name
        self.base = base
        self.count = count
        self.batch_bytes = batch_bytes
        self._spread = Spread(count, batch_bytes=batch_bytes, first=first)

    def destinations(self, rows: Rows, given: pa.Array | None) -> Indexes:
        found = (
            np.full(len(rows), NO_KEY, np.int64)
            if rows.keys is None
            else partitions_of_keys(rows.keys, self.count)
        )
        if given is not None:
            chosen = given.cast(pa.int64()).fill_null(NO_KEY).to_numpy()
            is_given = given.is_valid().to_numpy(zero_copy_only=False)
            wrong = is_given & ((chosen < 0) | (chosen >= self.count))
            if wrong.any():
                raise ConfigurationError(
                    f"{self.name} has no partition {chosen[wrong][0]}, only 0 to {self.count - 1}"
                )
            found = np.where(is_given, chosen, found)
        free = found == NO_KEY
        if free.any():
            found[free] = self._spread.take(content_sizes(rows)[free])
        return found + self.base


class RowWriter:
    def __init__(
        self, client: ClusterClient, producer: BatchProducer, options: SinkOptions, *, first_partition: int
    ) -> None:
        self.row_count = 0
        self._client = client
        self._producer = producer
        self._options = options
        self._first_partition = first_partition
        self._topics: dict[str, _Topic] = {}
        self._places: list[TopicPartition] = []
        """By destination."""
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.nbytes > _SLICE_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            self.write(batch.slice(0, middle))
            self.write(batch.slice(middle))
            return
        self.row_count += batch.num_rows
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= GATHER_BYTES:
            self._send()

    def finish(self) -> None:
        """Returns when all rows are in the log."""
        self._send()
        self._producer.flush()

    def _send(self) -> None:
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered.clear()
        self._gathered_bytes = 0
        columns = {name: _one_chunk(table.column(name)) for name in table.column_names}
        rows = Rows(
            _binary(columns["value"]),
            _binary(columns["key"]) if "key" in columns else None,
            columns.get("headers"),
        )
        given = columns.get("partition")
        if self._options.topic is not None:
            self._encode(self._topic(self._options.topic), rows, given)
            return
        names = columns["topic"].dictionary_encode()
        if names.null_count:
            raise ConfigurationError(
                "a row has no topic: its column topic is null, and the option topic is not set"
            )
        codes = names.indices.to_numpy()
        for code, name in enumerate(names.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            part = rows if len(chosen) == len(rows) else rows.take(chosen)
            self._encode(self._topic(name), part, None if given is None else given.take(pa.array(chosen)))

    def _encode(self, topic: _Topic, rows: Rows, given: pa.Array | None) -> None:
        destinations = topic.destinations(rows, given)
        self._send_rounds(encode(rows, destinations, batch_bytes=topic.batch_bytes))

    def _send_rounds(self, payloads: Iterable[EncodedPayload]) -> None:
        waiting: dict[int, deque[EncodedPayload]] = {}
        for payload in payloads:
            waiting.setdefault(payload.destination, deque()).append(payload)
        now_ms = self._client.clock.now_ms()
        while waiting:
            request: dict[TopicPartition, UncompressedBatch] = {}
            size = 0
            for destination in list(waiting):
                if size >= REQUEST_BYTES:
                    break
                payload = waiting[destination].popleft()
                if not waiting[destination]:
                    del waiting[destination]
                size += len(payload.records)
                request[self._places[destination]] = UncompressedBatch(
                    payload.records, payload.record_count, now_ms
                )
            self._producer.send(request)

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            # Nothing else may be asked while batches are in flight.
            self._producer.flush()
            self._topics[name] = self._found(name)
        return self._topics[name]

    def _found(self, name: str) -> _Topic:
        try:
            view = self._client.topic(name)
        except NoSuchTopic:
            # Where the broker creates topics by itself it does so now; where not, it is said that there is none.
            self._client.refresh([name], create=True)
            view = self._client.topic(name)
        settings = describe_topic_settings(self._client, name)
        allowed = next((one.value for one in settings if one.name == "max.message.bytes"), None)
        room = int(allowed or _DEFAULT_MESSAGE_BYTES) - HEADER_SIZE
        if self._options.codec is not Codec.NONE:
            # What cannot be compressed becomes a little larger.
            room -= room // 5
        topic = _Topic(
            name,
            len(self._places),
            len(view.partitions),
            batch_bytes=max(1, min(self._options.batch_bytes, room)),
            first=self._first_partition,
        )
        self._places += [(name, index) for index in range(topic.count)]
        return topic


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _binary(column: pa.Array) -> pa.Array:
    """Texts as their bytes, in UTF-8."""
    return column if column.type == pa.binary() else column.cast(pa.binary())
