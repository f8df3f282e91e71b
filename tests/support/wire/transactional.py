"""A transactional producer at a single broker, whose every request is of the version that a test wants.

    client = TransactionalClient(broker)
    client.init()
    client.produce("t", b"value")
    client.end(committed=True)

It remembers what a producer does: its id and epoch, and the next sequence of each partition. Nothing is retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flintmq.coordinator.runtime.machine import CoordinatorRecord
from flintmq.coordinator.transactions.decision import TransactionDecision
from flintmq.coordinator.transactions.records import encode_key, encode_value
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from flintmq.records.record import build_batch, records_of
from flintmq.storage import reader
from flintmq.storage.visibility import Isolation
from support.broker.single_broker import SingleBroker
from support.wire.batches import split

Place = tuple[str, int]
Producer = tuple[int, int]
"""Id and epoch."""

ID = "tx"
TIMEOUT_MS = 60_000
LAST_CLIENT_EPOCH = 32_766


class TransactionalClient:
    def __init__(self, broker: SingleBroker, transactional_id: str = ID) -> None:
        self.broker = broker
        self.id = transactional_id
        self.producer: Producer = (-1, -1)
        self.sequences: dict[Place, int] = {}

    def use(self, producer_id: int, epoch: int) -> None:
        """Another id or epoch begins again at sequence 0."""
        if (producer_id, epoch) != self.producer:
            self.producer = producer_id, epoch
            self.sequences.clear()

    def init(self, version: int = 5, **fields: Any) -> ErrorCode:
        request = InitProducerIdRequest(
            **{"transactional_id": self.id, "transaction_timeout_ms": TIMEOUT_MS, **fields}
        )
        answer = self.broker.ask(request, InitProducerIdResponse, version)
        if answer.error_code == ErrorCode.NONE:
            self.use(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def bump(self, version: int = 5, producer: Producer | None = None) -> ErrorCode:
        """Initialize as one who has an id and epoch already (KIP-360)."""
        producer_id, epoch = producer or self.producer
        return self.init(version, producer_id=producer_id, producer_epoch=epoch)

    def add(
        self, *places: Place, version: int = 3, verify_only: bool = False, producer: Producer | None = None
    ) -> dict[Place, ErrorCode]:
        producer_id, epoch = producer or self.producer
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[one])
        answer = self.broker.ask(request, AddPartitionsToTxnResponse, version)
        if version < 4:
            return codes_added(answer.results_by_topic_v3_and_below)
        (result,) = answer.results_by_transaction
        assert result.transactional_id == self.id
        return codes_added(result.topic_results)

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int = 12,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> ErrorCode:
        """Without a sequence, the next one, which counts on if the batch is taken."""
        first = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        batch = transactional_batch(*values, producer=producer or self.producer, sequence=first)
        request = produce_of(self.broker, {(topic, partition): batch}, version, transactional_id=self.id)
        (code,) = produced(self.broker.ask(request, ProduceResponse, version))
        if code is ErrorCode.NONE and sequence is None:
            self.sequences[topic, partition] = first + max(1, len(values))
        return code

    def add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        producer_id, epoch = self.producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        return ErrorCode(self.broker.ask(request, AddOffsetsToTxnResponse, version).error_code)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[Place, int],
        version: int = 5,
        producer: Producer | None = None,
        **fields: Any,
    ) -> dict[Place, ErrorCode]:
        producer_id, epoch = producer or self.producer
        topics: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata="m"
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
            **fields,
        )
        answer = self.broker.ask(request, TxnOffsetCommitResponse, version)
        return {
            (topic.name, one.partition_index): ErrorCode(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }

    def end(self, *, committed: bool, version: int = 5, producer: Producer | None = None) -> ErrorCode:
        """The newest version tells the id and epoch to go on with."""
        producer_id, epoch = producer or self.producer
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        answer = self.broker.ask(request, EndTxnResponse, version)
        if version >= 5 and answer.error_code == ErrorCode.NONE:
            self.use(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def describe(self) -> DescribeTransactionsResponse.TransactionState:
        (found,) = described(self.broker, self.id)
        return found

    @property
    def state(self) -> str:
        return self.describe().transaction_state

    @property
    def partitions(self) -> list[Place]:
        return [(topic.topic, index) for topic in self.describe().topics for index in topic.partitions]

    def exhaust(self) -> None:
        """Let its epoch be the last that a client may have, whatever its state."""
        coordinator = self.broker.transactions
        shard = coordinator.shard_of(self.id)
        assert shard is not None
        known = shard.machine.get(self.id)
        assert known is not None
        value = encode_value(known._replace(epoch=LAST_CLIENT_EPOCH), log_version=1)
        entry = CoordinatorRecord(encode_key(self.id), value)
        shard.carry_out(lambda _: [TransactionDecision(records=[entry])])
        self.broker.loop.run_until_idle()
        self.use(self.producer[0], LAST_CLIENT_EPOCH)


def find_coordinator(broker: SingleBroker, version: int = 3, **fields: Any) -> FindCoordinatorResponse:
    """Also makes the topic and waits until it is loaded."""
    request = FindCoordinatorRequest(**{"key": ID, "key_type": 1, **fields})
    found = broker.ask(request, FindCoordinatorResponse, version)
    broker.loop.run_until_complete(broker.transactions.loaded())
    return found


def described(broker: SingleBroker, *ids: str) -> list[DescribeTransactionsResponse.TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=list(ids))
    return broker.ask(request, DescribeTransactionsResponse, 0).transaction_states


def transactional_batch(*values: bytes, producer: Producer, sequence: int = 0) -> bytes:
    return build_batch(
        [(None, value, 1_700_000_000_000, ()) for value in values or (b"value",)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )


def produce_of(
    broker: SingleBroker,
    batches: Mapping[Place, bytes],
    version: int,
    *,
    transactional_id: str | None = ID,
) -> ProduceRequest:
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, []).append(
            ProduceRequest.PartitionProduceData(index=partition, records=batch)
        )
    named = []
    for topic, partitions in topics.items():
        data = ProduceRequest.TopicProduceData(partition_data=partitions)
        if version >= 13:
            data.topic_id = broker.topic_id(topic)
        else:
            data.name = topic
        named.append(data)
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=named)


def produced(answer: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for topic in answer.responses for one in topic.partition_responses]


def codes_added(
    topics: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult],
) -> dict[Place, ErrorCode]:
    return {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in topics
        for one in topic.results_by_partition
    }


def stable(broker: SingleBroker, topic: str, partition: int = 0) -> tuple[int, int]:
    """Up to where committed records may be read, and all records."""
    log = broker.partition(topic, partition).log
    return log.last_stable_offset, log.high_watermark


def committed_values(broker: SingleBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a consumer that reads committed records gets, which is told of aborted transactions (KIP-98)."""
    log = broker.partition(topic, partition).log
    found = reader.read(log, log.start_offset, 1 << 20, Isolation.READ_COMMITTED, at_least_one=True)
    if found is None:
        return []
    coming = sorted(
        reader.aborted_transactions(log, found, log.start_offset), key=lambda one: one.first_offset
    )
    skipped: set[int] = set()
    values: list[bytes | None] = []
    for header, batch in split(found.read()):
        while coming and coming[0].first_offset <= header.last_offset:
            skipped.add(coming.pop(0).producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [record.value for record in records_of(memoryview(batch), limit=1 << 20)]
    return values
