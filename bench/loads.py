"""What raw sockets send: prebuilt produce requests, fetch loops, and several connections driven by one thread.

A batch is built once and sent again and again, so the client's core is never the bottleneck and the broker's
work is that of a real batch. Every answer is checked: a broker that refuses is an error, not a fast broker.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from crc32c import crc32c

from bench.wire import Connection, body_of, frame
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from flintmq.records.batch import CRC_POSITION, CRC_START, HEADER_SIZE, advance_sequence, read_header
from flintmq.records.compression import Codec
from flintmq.records.record import build_batch

COMMON_PRODUCE_VERSION: Final = 8
COMMON_FETCH_VERSION: Final = 11
"""The newest before flexible fields: what clients of many years speak."""
NEWEST_PRODUCE_VERSION: Final = 13
NEWEST_FETCH_VERSION: Final = 18
"""Topics are named by id, fetches have sessions (KIP-516, KIP-227)."""

_NO_SESSION_EPOCH: Final = -1
_CORRELATION_POSITION: Final = 8
_SEQUENCE_POSITION: Final = 53
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_FETCH_WAIT_MS: Final = 500
_EMPTY_ANSWERS_MAX: Final = 20
_SILENCE_MAX_MS: Final = 30_000
_FETCH_BYTES_MAX: Final = 50 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 1024 * 1024


class Topic(NamedTuple):
    name: str
    id: bytes
    partitions: int


class ProducerIdentity(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchShape:
    """`target_bytes` is what the batch has before compression, roughly, as `batch.size` of a producer."""

    record_bytes: int
    target_bytes: int
    codec: Codec = Codec.NONE

    @property
    def count(self) -> int:
        # A record's own fields take about ten bytes.
        return max(1, self.target_bytes // (self.record_bytes + 10))

    @property
    def payload_bytes(self) -> int:
        return self.count * self.record_bytes


ONE_RECORD: Final = BatchShape(record_bytes=100, target_bytes=1)


def payload(size: int, seed: int) -> bytes:
    """Bytes that compress about as well as ordinary text does: every other one is the same."""
    random = Random(seed)
    return bytes(101 if i % 2 == 0 else 97 + random.randrange(26) for i in range(size))


def batch_of(shape: BatchShape, identity: ProducerIdentity | None = None) -> bytes:
    values = [payload(shape.record_bytes, seed) for seed in range(min(16, shape.count))]
    now_ms = int(time.time() * 1000)
    return build_batch(
        [(None, values[i % len(values)], now_ms, ()) for i in range(shape.count)],
        codec=shape.codec,
        producer_id=identity.id if identity else -1,
        producer_epoch=identity.epoch if identity else -1,
        base_sequence=0 if identity else -1,
    )


class ProduceLoad:
    """An endless row of requests of one batch each, over the partitions in turn."""

    def __init__(
        self,
        topic: Topic,
        shape: BatchShape,
        *,
        version: int = COMMON_PRODUCE_VERSION,
        acks: int = 1,
        identity: ProducerIdentity | None = None,
    ) -> None:
        self.shape = shape
        self.version = version
        batch = batch_of(shape, identity)
        self._frames = [_produce(topic, index, batch, version, acks) for index in range(topic.partitions)]
        self._batch_position = bytes(self._frames[0]).index(batch)
        self.batch_bytes = len(batch)
        self._sequences = [0] * topic.partitions if identity else None
        self._sent = 0

    def next(self) -> bytearray:
        """Good until its turn comes again: the request is changed in place."""
        index = self._sent % len(self._frames)
        request = self._frames[index]
        self._sent += 1
        _INT32.pack_into(request, _CORRELATION_POSITION, self._sent & 0x7FFFFFFF)
        if self._sequences is not None:
            start = self._batch_position
            _INT32.pack_into(request, start + _SEQUENCE_POSITION, self._sequences[index])
            self._sequences[index] = advance_sequence(self._sequences[index], self.shape.count)
            with memoryview(request) as view:
                crc = crc32c(view[start + CRC_START : start + self.batch_bytes])
            _UINT32.pack_into(request, start + CRC_POSITION, crc)
        return request

    def check(self, answer: memoryview) -> None:
        _check_produced(answer, self.version)

    def run(self, connection: Connection, requests: int, *, in_flight: int) -> list[float]:
        """Send so many, with never more than `in_flight` unanswered; the seconds each took."""
        sent_at: list[float] = []
        took: list[float] = []
        while len(took) < requests:
            while len(sent_at) < requests and len(sent_at) - len(took) < in_flight:
                request = self.next()
                sent_at.append(time.perf_counter())
                connection.send(request)
            answer = connection.read()
            took.append(time.perf_counter() - sent_at[len(took)])
            self.check(answer)
        return took


class FetchLoad:
    """A consumer of all partitions of a topic from offset 0, one request at a time."""

    def __init__(
        self,
        topic: Topic,
        *,
        version: int = COMMON_FETCH_VERSION,
        sessions: bool = False,
        wait_ms: int = _FETCH_WAIT_MS,
    ) -> None:
        self.records = 0
        self.batches = 0
        self._topic = topic
        self._version = version
        self._wait_ms = wait_ms
        self.offsets = [0] * topic.partitions
        self._changed = set(range(topic.partitions))
        self._session_id = 0
        self._session_epoch = 0 if sessions else _NO_SESSION_EPOCH

    def next(self) -> bytearray:
        wanted = FetchRequest.FetchTopic(
            # Each version has one of the two; the other is left out.
            topic=self._topic.name,
            topic_id=self._topic.id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=self.offsets[index],
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
                for index in sorted(self._changed)
            ],
        )
        return frame(
            FetchRequest(
                max_wait_ms=self._wait_ms,
                min_bytes=1,
                max_bytes=_FETCH_BYTES_MAX,
                session_id=self._session_id,
                session_epoch=self._session_epoch,
                topics=[wanted] if wanted.partitions else [],
            ),
            self._version,
        )

    def take(self, answer: memoryview) -> int:
        """Go on behind what the answer holds; the number of records in it."""
        body = body_of(answer, FetchResponse, self._version)
        refuse(body.error_code)
        if self._session_epoch >= 0:
            # A session asks again only for partitions whose position has changed (KIP-227).
            self._session_id, self._session_epoch = body.session_id, self._session_epoch + 1
            self._changed.clear()
        before = self.records
        for topic in body.responses:
            for one in topic.partitions:
                refuse(one.error_code)
                if one.records:
                    self._advance(one.partition_index, memoryview(one.records))
        return self.records - before

    def _advance(self, index: int, records: memoryview) -> None:
        position = 0
        self._changed.add(index)
        while position + HEADER_SIZE <= len(records):
            header = read_header(records, position)
            if position + header.size > len(records):
                break
            self.records += header.record_count
            self.batches += 1
            self.offsets[index] = header.last_offset + 1
            position += header.size

    def run(self, connection: Connection, records: int) -> int:
        """Fetch until so many have come; the number of requests that took."""
        requests = empty = 0
        while self.records < records:
            connection.send(self.next())
            requests += 1
            empty = 0 if self.take(connection.read()) else empty + 1
            if empty == _EMPTY_ANSWERS_MAX:
                raise TimeoutError(f"{self.records} of {records} records came")
        return requests


def produce_batches(
    connection: Connection, topic: Topic, batches: Iterable[bytes], *, in_flight: int
) -> None:
    """Each batch once, to partition 0, with never more than `in_flight` unanswered."""
    unanswered = 0
    for batch in batches:
        if unanswered == in_flight:
            _check_produced(connection.read(), COMMON_PRODUCE_VERSION)
            unanswered -= 1
        connection.send(_produce(topic, 0, batch, COMMON_PRODUCE_VERSION, 1))
        unanswered += 1
    for _ in range(unanswered):
        _check_produced(connection.read(), COMMON_PRODUCE_VERSION)


Handler = Callable[[memoryview], bytes | bytearray | None]
"""Takes an answer; returns the next request for the same connection, or None if there is none now."""


class Driver:
    """Serves several connections in one thread: each answer goes to its connection's handler."""

    def __init__(self, handlers: Sequence[tuple[Connection, Handler]]) -> None:
        self._by_descriptor = {connection.fileno(): (connection, handler) for connection, handler in handlers}
        self._poll = select.poll()
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            ready = self._poll.poll(_SILENCE_MAX_MS)
            if not ready:
                raise TimeoutError(f"the broker has not answered for {_SILENCE_MAX_MS} ms")
            for descriptor, _ in ready:
                connection, handler = self._by_descriptor[descriptor]
                for answer in _answers(connection):
                    request = handler(answer)
                    if request is not None:
                        connection.send(request)


def _answers(connection: Connection) -> Iterator[memoryview]:
    yield connection.read()
    while connection.has_answer:
        yield connection.read()


def _produce(topic: Topic, index: int, batch: bytes, version: int, acks: int) -> bytearray:
    data = ProduceRequest.TopicProduceData(
        name=topic.name,
        topic_id=topic.id,
        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch)],
    )
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), version)


def _check_produced(answer: memoryview, version: int) -> None:
    for topic in body_of(answer, ProduceResponse, version).responses:
        for one in topic.partition_responses:
            refuse(one.error_code, one.error_message)


def refuse(error_code: int, message: str | None = None) -> None:
    """Raise what the broker said no with."""
    if error_code:
        code = ErrorCode(error_code)
        raise RequestError(code, f"{code.name}: {message or 'no message'}")
