"""Writing records that are already bytes: many partitions in one request, a few requests in flight, each batch once.

    producer = BatchProducer(client, codec=Codec.ZSTD, transaction=transaction)
    producer.send({("orders", 0): UncompressedBatch(payload, record_count=500, timestamp_ms=now)})
    producer.flush()

Invariant: the batches of one partition are written in the order in which they were sent, each once. They carry
sequence numbers (KIP-98); no more of them are in flight than a broker remembers, so that one sent again after a lost
connection is recognised. While something is in flight the client's connections are the producer's alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.connection import BrokerConnection
from flintmq.client.errors import ClientError, check, may_pass
from flintmq.client.retries import RETRIABLE
from flintmq.client.transaction import OpenedTransaction
from flintmq.effects import Buffer
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.batch import NO_EPOCH, TRANSACTIONAL, BatchHeader, advance_sequence
from flintmq.records.compression import Codec
from flintmq.records.record import MAGIC, with_payload
from flintmq.records.topic_partition import TopicPartition
from flintmq.records.uuids import ZERO_UUID

IN_FLIGHT_MAX: Final = 5
"""Batches of one producer in one partition that a broker recognises when they come again."""

_ALL: Final = -1
_FIRST_ADDING: Final = 12
_LAST_VERSION_BY_NAME: Final = 12


class UncompressedBatch(NamedTuple):
    """The records of one batch, not compressed."""

    payload: Buffer
    record_count: int
    timestamp_ms: int
    """Of the first record, which the others' count from."""
    max_timestamp_ms: int | None = None
    """None if all are the same."""


class _Flight(NamedTuple):
    connection: BrokerConnection
    batches: Mapping[TopicPartition, bytes]


class BatchProducer:
    def __init__(
        self,
        client: ClusterClient,
        *,
        codec: Codec = Codec.NONE,
        transaction: OpenedTransaction | None = None,
        attempts: int | None = None,
    ) -> None:
        self._client = client
        self._codec = codec
        self._transaction = transaction
        self._attempts = client.attempts if attempts is None else attempts
        self._identity = self._take_identity()
        self._sequences: dict[TopicPartition, int] = {}
        self._unwritten: dict[TopicPartition, deque[bytes]] = {}
        """Batches that are not known to be written, in their order."""
        self._flights: deque[_Flight] = deque()
        self._known: set[TopicPartition] = set()
        """Where the producer has written. Elsewhere a broker takes whatever comes first for the beginning."""

    def _take_identity(self) -> tuple[int, int]:
        if self._transaction is not None:
            return self._transaction.producer_id, self._transaction.epoch
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        response = self._client.call(request, InitProducerIdResponse, lambda one: check(one.error_code))
        return response.producer_id, response.producer_epoch

    def send(self, batches: Mapping[TopicPartition, UncompressedBatch]) -> None:
        """One batch for each of these partitions, whose topics the client must know; waits if it must."""
        for topic_partition, records in batches.items():
            self._unwritten.setdefault(topic_partition, deque()).append(
                self._sealed(topic_partition, records)
            )
        by_leader: dict[int, list[TopicPartition]] = {}
        try:
            for topic_partition in batches:
                by_leader.setdefault(self._client.leader(*topic_partition), []).append(topic_partition)
            while self._flights and (
                len(self._flights) + len(by_leader) > IN_FLIGHT_MAX or self._begins(batches)
            ):
                self._land()
            for node, topic_partitions in by_leader.items():
                self._take_off(
                    node,
                    {
                        topic_partition: self._unwritten[topic_partition][-1]
                        for topic_partition in topic_partitions
                    },
                )
        except (ClientError, RequestError) as error:
            self._recover(error)

    def _begins(self, topic_partitions: Iterable[TopicPartition]) -> bool:
        """Whether the very first batch of one of these is on its way: no other may be sent behind it."""
        return any(
            topic_partition not in self._known and len(self._unwritten[topic_partition]) > 1
            for topic_partition in topic_partitions
        )

    def flush(self) -> None:
        """Returns when all is written."""
        try:
            while self._flights:
                self._land()
        except (ClientError, RequestError) as error:
            self._recover(error)

    def _sealed(self, topic_partition: TopicPartition, records: UncompressedBatch) -> bytes:
        sequence = self._sequences.get(topic_partition, 0)
        self._sequences[topic_partition] = advance_sequence(sequence, records.record_count)
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=0 if self._transaction is None else TRANSACTIONAL,
            last_offset_delta=records.record_count - 1,
            base_timestamp=records.timestamp_ms,
            max_timestamp=records.timestamp_ms
            if records.max_timestamp_ms is None
            else records.max_timestamp_ms,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            record_count=records.record_count,
        )
        return with_payload(header, records.payload, self._codec)

    # ---- as long as all goes well

    def _take_off(self, node: int, batches: Mapping[TopicPartition, bytes]) -> None:
        connection = self._client.broker(node)
        by_name = any(self._topic_id(topic) == ZERO_UUID for topic, _ in batches)
        if self._transaction is not None and connection.served.choose(ProduceRequest) < _FIRST_ADDING:
            raise ProtocolError("the broker does not add partitions to a transaction by Produce (version 12)")
        request = self._request(batches)
        highest = _LAST_VERSION_BY_NAME if by_name else None
        connection.send(request, self._client.request_timeout_s, highest=highest)
        self._flights.append(_Flight(connection, batches))

    def _land(self) -> None:
        """Take the oldest answer. What it says is written is not unwritten any more, whatever else it says."""
        flight = self._flights.popleft()
        response = flight.connection.receive(ProduceResponse, self._client.request_timeout_s)
        failed = self._judge(flight.batches, response)
        if failed:
            raise failed[0]

    # ---- when it does not

    def _recover(self, error: FlintError) -> None:
        """Wait for what is under way, then write what is left one by one, until it is written or hopeless."""
        while self._flights:
            try:
                self._land()
            except (ClientError, RequestError):
                # Behind a batch that failed the others of its partition are out of order: they are sent again.
                pass
        failures = 0
        while True:
            failures += 1
            if not _may_pass(error) or failures >= self._attempts:
                raise error
            self._client.note_failure(error)
            self._client.pause(failures)
            left = self._unwritten_count
            try:
                self._write_oldest()
                return
            except (ClientError, RequestError) as again:
                error = again
                if self._unwritten_count < left:
                    failures = 0

    @property
    def _unwritten_count(self) -> int:
        return sum(map(len, self._unwritten.values()))

    def _write_oldest(self) -> None:
        """Until nothing is left; one batch of each partition at a time, and nothing else in flight."""
        while self._unwritten:
            self._client.freshen()
            by_leader: dict[int, dict[TopicPartition, bytes]] = {}
            for topic_partition, batches in self._unwritten.items():
                by_leader.setdefault(self._client.leader(*topic_partition), {})[topic_partition] = batches[0]
            for node, oldest in by_leader.items():
                self._take_off(node, oldest)
                self._land()

    # ---- requests and answers

    def _judge(
        self, batches: Mapping[TopicPartition, bytes], response: ProduceResponse
    ) -> list[RequestError]:
        names = {self._topic_id(topic): topic for topic, _ in batches}
        failed: list[RequestError] = []
        acknowledged: set[TopicPartition] = set()
        for topic in response.responses:
            for one in topic.partition_responses:
                topic_partition = topic.name or names.get(topic.topic_id, ""), one.index
                acknowledged.add(topic_partition)
                try:
                    # A duplicate is a batch whose answer was lost and whose offset the broker has forgotten.
                    if one.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                        check(
                            one.error_code,
                            one.error_message,
                            what=f"{topic_partition[0]}-{topic_partition[1]}",
                        )
                except RequestError as error:
                    failed.append(error)
                    continue
                self._written(topic_partition, batches.get(topic_partition))
        if acknowledged != set(batches):
            raise ProtocolError("the broker's answer is not about the partitions that were written to")
        return failed

    def _written(self, topic_partition: TopicPartition, batch: bytes | None) -> None:
        """It, and all before it: a broker that knows the producer takes no batch whose predecessor it has not."""
        waiting = self._unwritten.get(topic_partition, deque())
        if not any(one is batch for one in waiting):
            raise ProtocolError(
                f"the broker says twice that it wrote a batch of {topic_partition[0]}-{topic_partition[1]}"
            )
        while waiting.popleft() is not batch:
            pass
        if not waiting:
            del self._unwritten[topic_partition]
        self._known.add(topic_partition)

    def _request(self, batches: Mapping[TopicPartition, bytes]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for (topic, partition), batch in batches.items():
            data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
            topics.setdefault(topic, []).append(data)
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.id,
            acks=_ALL,
            timeout_ms=int(self._client.request_timeout_s * 1000),
            topic_data=[
                ProduceRequest.TopicProduceData(name=name, topic_id=self._topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )

    def _topic_id(self, topic: str) -> bytes:
        known = self._client.metadata.topics.get(topic)
        return ZERO_UUID if known is None else known.id


def _may_pass(error: FlintError) -> bool:
    return may_pass(error) or (isinstance(error, RequestError) and error.code in RETRIABLE)
