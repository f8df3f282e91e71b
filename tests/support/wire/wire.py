"""A blocking connection that says exactly what a test wants said, in any version, pipelined or cut short.

    with Wire(broker.address) as wire:
        response = wire.ask(MetadataRequest(), 12)

It knows nothing of retries, leaders or batching: what comes back is what the broker sent.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import response_is_flexible
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.compression import Codec
from flintmq.records.record import Record, build_batch, records_of

M = TypeVar("M", bound=Message)

TIMEOUT_S = 60.0
PRODUCE_VERSION, FETCH_VERSION, CREATE_VERSION, METADATA_VERSION = 9, 12, 7, 12
UNPACKED_MAX = 1 << 27
TIMESTAMP = 1_700_000_000_000
_HEADER = struct.Struct(">hhih")


class Wire:
    def __init__(
        self, address: str, *, timeout_s: float = TIMEOUT_S, receive_buffer: int | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.socket(socket.AF_INET6 if "[" in host else socket.AF_INET)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout_s)
        try:
            self.sock.connect((host.strip("[]"), int(port)))
        except OSError:
            self.sock.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._sent: dict[int, tuple[type[Message], int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sock.close()

    # ---- frames

    def send(self, message: Message, version: int) -> int:
        """Returns the correlation id."""
        correlation_id = next(self._correlation_ids)
        self.sock.sendall(self.frame(message, version, correlation_id))
        return correlation_id

    def frame(self, message: Message, version: int, correlation_id: int) -> bytes:
        """The request as it goes over the wire, for those who send it in pieces; expects its answer."""
        key = type(message).api_key
        assert key is not None
        self._sent[correlation_id] = (messages.response_of(key), version)
        tags = b"\0" if version >= type(message).flexible else b""
        body = _HEADER.pack(key, version, correlation_id, 4) + b"test" + tags + encode(message, version)
        return struct.pack(">i", len(body)) + body

    def receive(self) -> tuple[int, Message]:
        """The next answer, whichever request it belongs to, and that request's correlation id."""
        body = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", body)
        cls, version = self._sent.pop(correlation_id)
        assert cls.api_key is not None
        start = 5 if response_is_flexible(cls.api_key, version) else 4
        message, end = decode(cls, body, version, start)
        assert end == len(body), "the answer has bytes behind its end"
        return correlation_id, message

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return bytes(data)

    def is_closed_by_the_broker(self) -> bool:
        """Waits for the end; False if the broker sends something instead."""
        try:
            return not self.sock.recv(1)
        except ConnectionResetError:
            return True

    def ask(self, message: Message, version: int) -> Message:
        correlation_id = self.send(message, version)
        answered, response = self.receive()
        assert answered == correlation_id
        return response

    # ---- what most tests say

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Its id. Settings with underscores for dots."""
        request = CreateTopicsRequest(
            timeout_ms=10_000,
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=-1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
        )
        response = self.ask(request, CREATE_VERSION)
        assert isinstance(response, CreateTopicsResponse)
        (topic,) = response.topics
        assert topic.error_code == 0, (topic.error_code, topic.error_message)
        return topic.topic_id

    def metadata(
        self, *names: str, create: bool = False, version: int = METADATA_VERSION
    ) -> MetadataResponse:
        """Of these topics, or of all."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] if names else None
        response = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
        assert isinstance(response, MetadataResponse)
        return response

    def produce(
        self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = PRODUCE_VERSION
    ) -> ProduceResponse.PartitionProduceResponse:
        response = self.ask(produce_request(topic, batch, partition=partition, acks=acks), version)
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def fetch(self, request: FetchRequest, version: int = FETCH_VERSION) -> FetchResponse:
        response = self.ask(request, version)
        assert isinstance(response, FetchResponse)
        return response


def batch_of(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = TIMESTAMP,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of records with these values, all with the same key and time."""
    return build_batch(
        [(key, value, timestamp, ()) for value in values],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce_request(
    topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )


def fetch_request(
    topic: str | bytes,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """Of one topic, by name or by id, partitions at these offsets. The session as (id, epoch)."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
    )
    if offsets:
        named = FetchRequest.FetchTopic(
            partitions=[
                FetchRequest.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
                for index, offset in offsets.items()
            ]
        )
        if isinstance(topic, bytes):
            named.topic_id = topic
        else:
            named.topic = topic
        request.topics = [named]
    return request


def values_of(response: FetchResponse) -> dict[int, list[bytes | None]]:
    """The values of all whole batches, by partition."""
    found: dict[int, list[bytes | None]] = {}
    for topic in response.responses:
        for partition in topic.partitions:
            assert partition.error_code == 0, partition.error_code
            found.setdefault(partition.partition_index, []).extend(
                record.value for record in records_in(partition.records)
            )
    return found


def records_in(data: object) -> list[Record]:
    """The records of all whole batches in what a fetch gave."""
    view = memoryview(data) if isinstance(data, bytes | bytearray | memoryview) else memoryview(b"")
    records: list[Record] = []
    while len(view) >= 12:
        size = 12 + int.from_bytes(view[8:12], "big")
        if size > len(view):
            break
        records += records_of(view[:size], limit=UNPACKED_MAX)
        view = view[size:]
    return records
