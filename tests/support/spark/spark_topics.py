"""Topics for Spark to read: made, filled batch by batch as a test wants it, cut at the front, deleted.

    with Topics(broker.address) as topics:
        topics.create("t", partitions=2)
        topics.write("t", [(b"key", b"value", 1_700_000_000_000, ())], codec=Codec.ZSTD)

Invariant: each `write` is one batch, and has been acknowledged when it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.topics import add_partitions, create_topic, delete_topic
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType, call_coordinator
from flintmq.client.errors import check
from flintmq.protocol.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord, build_batch

TIME_MS = 1_700_000_000_000
_TIMEOUT_MS = 30_000
_LAST_VERSION_BY_NAME = 12


def numbered(first: int, count: int) -> list[NewRecord]:
    """Records whose key and value are their number, a second apart."""
    return [
        (b"k%d" % number, b"v%d" % number, TIME_MS + number * 1000, ())
        for number in range(first, first + count)
    ]


class Topics:
    def __init__(self, address: str) -> None:
        self.client = ClusterClient(parse_addresses(address))

    def __enter__(self) -> Topics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()

    def create(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        # The tests' times are long ago, and retention is not to take them for old.
        kept = {"retention.ms": "-1", **(configs or {})}
        create_topic(self.client, name, partitions=partitions, replication_factor=1, configs=kept)
        return name

    def delete(self, name: str) -> None:
        delete_topic(self.client, name)

    def grow(self, name: str, partitions: int) -> None:
        add_partitions(self.client, name, partitions)

    def write(
        self, topic: str, records: Sequence[NewRecord], *, partition: int = 0, codec: Codec = Codec.NONE
    ) -> int:
        """The offset of the first record."""
        return self.write_batch(topic, build_batch(records, codec=codec), partition=partition)

    def write_batch(
        self, topic: str, batch: bytes, *, partition: int = 0, transactional_id: str | None = None
    ) -> int:
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            transactional_id=transactional_id,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )

        def ask() -> int:
            self.client.refresh([topic])
            connection = self.client.broker(self.client.leader(topic, partition))
            answer = connection.call(
                request, ProduceResponse, self.client.request_timeout_s, highest=_LAST_VERSION_BY_NAME
            )
            (one,) = answer.responses[0].partition_responses
            check(one.error_code, one.error_message)
            return one.base_offset

        return self.client.attempt(ask)

    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        """As retention does, at once."""
        request = DeleteRecordsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
                    ],
                )
            ],
        )
        self.client.refresh([topic])
        connection = self.client.broker(self.client.leader(topic, partition))
        answer = connection.call(request, DeleteRecordsResponse, self.client.request_timeout_s)
        check(answer.topics[0].partitions[0].error_code)

    def transaction(self, name: str) -> Transaction:
        return Transaction(self, name)


class Transaction:
    """A transactional producer, for one transaction after another."""

    def __init__(self, topics: Topics, name: str) -> None:
        self._topics = topics
        self._name = name
        self._sequences: dict[tuple[str, int], int] = {}
        _, answer = call_coordinator(
            topics.client,
            CoordinatorType.TRANSACTIONAL_ID,
            name,
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            lambda found: check(found.error_code),
        )
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def write(self, topic: str, records: Sequence[NewRecord], *, partition: int = 0) -> int:
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._sequences[topic, partition] = sequence + len(records)
        return self._topics.write_batch(topic, batch, partition=partition, transactional_id=self._name)

    def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        _, answer = call_coordinator(
            self._topics.client,
            CoordinatorType.TRANSACTIONAL_ID,
            self._name,
            request,
            EndTxnResponse,
            lambda found: check(found.error_code),
        )
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
