"""A transactional producer that says exactly what a test wants said, and retries nothing but init (KIP-890).

    producer = WireProducer(wire, "id")
    producer.init()
    producer.produce("topic", b"value")
    producer.end(committed=True)

The newest versions, in which partitions are added by the requests that write to them and each end bumps the epoch.
Every method gives the error code; what an answer tells of the producer id and epoch is kept.
"""

from __future__ import annotations

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from flintmq.records.batch import read_header
from flintmq.records.record import build_batch, records_of
from support.wire.wire import TIMESTAMP, UNPACKED_MAX, Wire, fetch_request, produce_request

INIT_VERSION, PRODUCE_VERSION, OFFSETS_VERSION, END_VERSION, ADD_VERSION = 5, 12, 5, 5, 3
_FIND_VERSION, _DESCRIBE_VERSION, _OFFSET_FETCH_VERSION = 4, 0, 8
_TRANSACTION_KEY = 1
_WAIT_MS = 30_000
READ_COMMITTED = 1

LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""What a client retries."""


class WireProducer:
    def __init__(self, wire: Wire, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[str, int] = {}

    def init(self) -> ErrorCode:
        """As a new instance does: an open transaction is aborted first, which is waited for."""
        self.wire.ask(
            FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[self.transactional_id]),
            _FIND_VERSION,
        )
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        while True:
            response = self.wire.ask(request, INIT_VERSION)
            assert isinstance(response, InitProducerIdResponse)
            code = ErrorCode(response.error_code)
            if code not in LATER:
                break
        if code is ErrorCode.NONE:
            self._has(response.producer_id, response.producer_epoch)
        return code

    def _has(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def batch(self, topic: str, *values: bytes, again: bool = False) -> bytes:
        """The next one for partition 0; with `again` the last one with these values once more."""
        base = self._sequences.get(topic, 0) - (len(values) if again else 0)
        self._sequences[topic] = base + len(values)
        return build_batch(
            [(None, value, TIMESTAMP, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=base,
            is_transactional=True,
        )

    def produce(self, topic: str, *values: bytes, again: bool = False) -> ErrorCode:
        return self.send_batch(topic, self.batch(topic, *values, again=again))

    def send_batch(self, topic: str, batch: bytes, *, version: int = PRODUCE_VERSION) -> ErrorCode:
        request = produce_request(topic, batch)
        request.transactional_id = self.transactional_id
        response = self.wire.ask(request, version)
        assert isinstance(response, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def add_partition(self, topic: str) -> ErrorCode:
        """As clients of the first generation do before they write."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
            ],
        )
        response = self.wire.ask(request, ADD_VERSION)
        assert isinstance(response, AddPartitionsToTxnResponse)
        (result,) = response.results_by_topic_v3_and_below
        return ErrorCode(result.results_by_partition[0].partition_error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, *, generation: int = -1, member_id: str = ""
    ) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        response = self.wire.ask(request, OFFSETS_VERSION)
        assert isinstance(response, TxnOffsetCommitResponse)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def end(self, *, committed: bool) -> ErrorCode:
        response = self.wire.ask(self.end_request(committed=committed), END_VERSION)
        assert isinstance(response, EndTxnResponse)
        if response.error_code == ErrorCode.NONE:
            self._has(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)


def state_of(wire: Wire, transactional_id: str) -> str:
    """As DescribeTransactions names it. Waits for a coordinator that is being loaded."""
    while True:
        response = wire.ask(
            DescribeTransactionsRequest(transactional_ids=[transactional_id]), _DESCRIBE_VERSION
        )
        assert isinstance(response, DescribeTransactionsResponse)
        (state,) = response.transaction_states
        if state.error_code not in LATER:
            assert state.error_code == ErrorCode.NONE, state.error_code
            return state.transaction_state


def committed_values(wire: Wire, topic: str, *, at_least: int = 0) -> list[bytes | None]:
    """What a reader of committed records finds in partition 0; so many are waited for."""
    values: list[bytes | None] = []
    aborting: set[int] = set()
    offset = 0
    while True:
        waits = len(values) < at_least
        request = fetch_request(topic, {0: offset}, max_wait_ms=_WAIT_MS if waits else 0)
        request.isolation_level = READ_COMMITTED
        partition = wire.fetch(request).responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NONE, partition.error_code
        begins = {(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()}
        view = memoryview(bytes(partition.records or b""))
        if not view:
            assert not waits, f"{topic}: {len(values)} of {at_least} values came"
            return values
        while view:
            header = read_header(view)
            batch, view = view[: header.size], view[header.size :]
            offset = header.last_offset + 1
            aborting |= {one for one, first in begins if first <= header.base_offset}
            begins = {one for one in begins if one[1] > header.base_offset}
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborting:
                values += [record.value for record in records_of(batch, limit=UNPACKED_MAX)]


def committed_offset(wire: Wire, group: str, topic: str) -> int:
    """Of partition 0; -1 if there is none. Waits until no transaction is about to change it."""
    request = OffsetFetchRequest(
        require_stable=True,
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
            )
        ],
    )
    while True:
        response = wire.ask(request, _OFFSET_FETCH_VERSION)
        assert isinstance(response, OffsetFetchResponse)
        (told,) = response.groups
        if told.error_code in LATER:
            continue
        assert told.error_code == ErrorCode.NONE, told.error_code
        partition = told.topics[0].partitions[0]
        if partition.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            assert partition.error_code == ErrorCode.NONE, partition.error_code
            return partition.committed_offset
