"""The coordinator without a broker: decisions are carried out at once, markers and timers when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from flintmq.coordinator.runtime.machine import Decision, StoredRecord, TimerKey
from flintmq.coordinator.transactions.decision import MarkerWork, TransactionDecision
from flintmq.coordinator.transactions.machine import TransactionMachine, TransactionSettings
from flintmq.coordinator.transactions.records import encode_key, encode_value
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from flintmq.records.topic_partition import TopicPartition

R = TypeVar("R", bound=Message)

ID = "orders"
TOKEN = 1
PARTITION = ("topic", 0)
START_MS = 1_700_000_000_000


class Driver:
    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now_ms = START_MS
        self.records: list[StoredRecord] = []
        self.markers: list[MarkerWork] = []
        self.timers: dict[TimerKey, int] = {}
        self.wanting: list[str] = []
        self.last_producer_id = 999
        self.write_error: ErrorCode | None = None
        """While set, no record can be written."""
        self.machine = TransactionMachine(self.settings, coordinator_epoch=5)
        self.perform(self.machine.loaded(self.now_ms))

    # ---- the runtime's part

    def perform(self, decision: Decision) -> Message | None:
        """Write, apply, set timers; the reply."""
        assert isinstance(decision, TransactionDecision)
        done: Decision = decision
        if decision.records and self.write_error is not None:
            assert decision.failed is not None, "a decision that writes says what happens if it cannot"
            done = decision.failed(self.write_error)
            assert not done.records
        else:
            for entry in decision.records:
                stored = StoredRecord(entry.key, entry.value, len(self.records), self.now_ms)
                self.records.append(stored)
                self.machine.apply(stored)
            self.markers += decision.markers
            self.wanting += decision.wants_producer_id
        for key, delay_ms in done.timers.items():
            self.timers.pop(key, None)
            if delay_ms is not None:
                self.timers[key] = self.now_ms + delay_ms
        assert len(done.responses) <= 1
        return done.responses[0][1] if done.responses else None

    def write_markers(self, count: int | None = None) -> None:
        """All markers that the coordinator has asked for, or so many of them."""
        works = self.markers[:count]
        del self.markers[:count]
        for work in works:
            decision = self.machine.markers_written(
                work.transactional_id, work.producer_id, work.producer_epoch, self.now_ms
            )
            self.perform(decision)

    def advance(self, duration_ms: int) -> None:
        """Time passes, and the timers that are due by then fire in their order."""
        end_ms = self.now_ms + duration_ms
        while due := sorted((at, str(key), key) for key, at in self.timers.items() if at <= end_ms):
            at, _, key = due[0]
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            self.perform(self.machine.expire(key, self.now_ms))
        self.now_ms = end_ms

    def crash(self, *, compacted: bool = False) -> None:
        """A new coordinator reads the records, or only the last of each key, as compaction leaves them."""
        self.machine = self.replayed(compacted=compacted)
        self.markers.clear()
        self.timers.clear()
        self.wanting.clear()
        self.perform(self.machine.loaded(self.now_ms))

    def replayed(self, *, compacted: bool) -> TransactionMachine:
        machine = TransactionMachine(self.settings, coordinator_epoch=6)
        last = {stored.key: stored.offset for stored in self.records}
        for stored in self.records:
            if not compacted or stored.offset == last[stored.key]:
                machine.apply(stored)
        return machine

    # ---- requests

    def new_producer_id(self) -> int:
        self.last_producer_id += 1
        return self.last_producer_id

    def init(
        self,
        transactional_id: str = ID,
        expected: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        wants = self.machine.wants_producer_id(transactional_id)
        new_producer_id = self.new_producer_id() if wants else -1
        return self._reply(
            self.machine.init_producer_id(
                TOKEN, request, version, new_producer_id=new_producer_id, now_ms=self.now_ms
            ),
            InitProducerIdResponse,
        )

    def producer(self, transactional_id: str = ID, *, timeout_ms: int = 60_000) -> tuple[int, int]:
        """The producer id and epoch of one that initializes and succeeds."""
        reply = self.init(transactional_id, timeout_ms=timeout_ms)
        assert reply.error_code == ErrorCode.NONE
        return reply.producer_id, reply.producer_epoch

    def add_all(
        self,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        transactional_id: str = ID,
        version: int = 5,
        verify_only: bool = False,
    ) -> AddPartitionsToTxnResponse:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in topics.items()
            ],
        )
        return self._reply(
            self.machine.add_partitions(TOKEN, request, version, self.now_ms), AddPartitionsToTxnResponse
        )

    def add(
        self,
        producer: tuple[int, int],
        partition: TopicPartition = PARTITION,
        *,
        transactional_id: str = ID,
        version: int = 5,
        verify_only: bool = False,
    ) -> int:
        """The error code for one partition."""
        reply = self.add_all(
            producer, [partition], transactional_id=transactional_id, version=version, verify_only=verify_only
        )
        topics = (
            reply.results_by_transaction[0].topic_results
            if version >= 4
            else reply.results_by_topic_v3_and_below
        )
        return topics[0].results_by_partition[0].partition_error_code

    def add_offsets(self, producer: tuple[int, int], offsets_partition: int, *, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="group"
        )
        reply = self._reply(
            self.machine.add_offsets(
                TOKEN, request, version, offsets_partition=offsets_partition, now_ms=self.now_ms
            ),
            AddOffsetsToTxnResponse,
        )
        return reply.error_code

    def end(
        self,
        producer: tuple[int, int],
        *,
        committed: bool,
        transactional_id: str = ID,
        version: int = 5,
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        wants = self.machine.wants_producer_id(transactional_id)
        new_producer_id = self.new_producer_id() if wants else -1
        return self._reply(
            self.machine.end(TOKEN, request, version, new_producer_id=new_producer_id, now_ms=self.now_ms),
            EndTxnResponse,
        )

    def abort(self, transactional_id: str = ID) -> EndTxnResponse:
        return self._reply(self.machine.abort(TOKEN, transactional_id, now_ms=self.now_ms), EndTxnResponse)

    def describe(self, transactional_id: str = ID) -> DescribeTransactionsResponse.TransactionState:
        decision = self.machine.describe(TOKEN, transactional_id)
        return self._reply(decision, DescribeTransactionsResponse).transaction_states[0]

    def list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        decision = self.machine.list_transactions(TOKEN, request, self.now_ms)
        return self._reply(decision, ListTransactionsResponse)

    def _reply(self, decision: Decision, kind: type[R]) -> R:
        reply = self.perform(decision)
        assert isinstance(reply, kind)
        return reply

    # ---- what there is

    @property
    def transaction(self) -> Transaction:
        found = self.machine.get(ID)
        assert found is not None
        return found

    def state(self) -> TransactionState:
        return self.transaction.state

    def prepared(self, transaction: Transaction) -> None:
        """As if an earlier coordinator had left this behind."""
        key = encode_key(transaction.transactional_id)
        value = encode_value(transaction, log_version=1)
        self.records.append(StoredRecord(key, value, len(self.records), self.now_ms))
        self.crash()
