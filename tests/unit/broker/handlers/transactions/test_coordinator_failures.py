"""Transactions under requests and faults that nobody has in mind: very many of everything, and ends that are late."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable

import pytest

from flintmq.broker.limits import ITEMS_PER_TURN
from flintmq.coordinator.transactions import marker_sender
from flintmq.coordinator.transactions.listing import list_transactions
from flintmq.coordinator.transactions.transaction import Transaction
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.transactional import TransactionalClient, committed_values, find_coordinator, stable

StartBroker = Callable[..., SingleBroker]

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
COUNT = 6
"""The partitions of the topic that the transactions touch."""
CPU_S_MAX = 5.0
"""Many times what these take, and a fraction of what they would if they were quadratic."""


@pytest.fixture
def client(broker: SingleBroker) -> TransactionalClient:
    return client_of(broker)


def client_of(broker: SingleBroker) -> TransactionalClient:
    broker.create("t", COUNT)
    find_coordinator(broker)
    client = TransactionalClient(broker)
    assert client.init() is NONE
    return client


class Turns:
    """Counts the turns of the loop, and how much of something happens in each."""

    def __init__(self, broker: SingleBroker) -> None:
        self._loop = broker.loop
        self._counts = [0]
        self._is_over = False
        self._turn()

    def _turn(self) -> None:
        self._counts.append(0)
        if not self._is_over:
            self._loop.call_soon(self._turn)

    def note(self) -> None:
        self._counts[-1] += 1

    def end(self) -> list[int]:
        """What happened in each turn in which something did."""
        self._is_over = True
        self._loop.run_until_idle()
        return [count for count in self._counts if count]


def count_markers(broker: SingleBroker, monkeypatch: pytest.MonkeyPatch) -> Turns:
    turns, write = Turns(broker), broker.services.markers.write_here

    def noted(*args: object, **kwargs: object) -> None:
        turns.note()
        write(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(broker.services.markers, "write_here", noted)
    return turns


def refuse_writes(broker: SingleBroker) -> None:
    """The disk has no room for the partitions of the topic any more."""

    def observe(operation: str, path: str) -> None:
        if operation == "write" and "/t-" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    broker.disk.observer = observe


def touch_all(client: TransactionalClient) -> None:
    for index in range(COUNT):
        assert client.produce("t", b"a", partition=index) is NONE


# ---- very many


@pytest.mark.plain
def test_the_markers_of_many_partitions_leave_others_their_turn(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(start_broker(markers_per_turn=4))
    touch_all(client)
    turns = count_markers(client.broker, monkeypatch)
    assert client.end(committed=True) is NONE
    assert turns.end() == [4, 2]
    assert client.state == "CompleteCommit"
    assert [stable(client.broker, "t", index) for index in range(COUNT)] == [(2, 2)] * COUNT
    assert client.produce("t", b"b") is NONE


@pytest.mark.plain
def test_an_operators_markers_leave_others_their_turn_and_come_once_to_each_partition(
    client: TransactionalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = count_markers(client.broker, monkeypatch)
    wanted = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=8,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                name="t", partition_indexes=[0, 0, *range(3 * ITEMS_PER_TURN)]
            )
        ],
    )
    request = WriteTxnMarkersRequest(markers=[wanted])
    (result,) = client.broker.ask(request, WriteTxnMarkersResponse, 1).markers
    assert turns.end() == [ITEMS_PER_TURN] * 3
    codes = [ErrorCode(one.error_code) for one in result.topics[0].partitions]
    assert codes == [NONE] * COUNT + [UNKNOWN] * (3 * ITEMS_PER_TURN - COUNT)
    assert stable(client.broker, "t") == (1, 1)


def test_a_description_of_many_ids_leaves_others_their_turn(
    client: TransactionalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, coordinator = Turns(client.broker), client.broker.transactions
    call = coordinator.call

    def noted(*args: object, **kwargs: object) -> object:
        turns.note()
        return call(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(coordinator, "call", noted)
    names = [client.id, *map(str, range(3 * ITEMS_PER_TURN - 1))]
    request = DescribeTransactionsRequest(transactional_ids=names)
    answer = client.broker.ask(request, DescribeTransactionsResponse, 0)
    assert [state.transactional_id for state in answer.transaction_states] == names
    assert turns.end() == [ITEMS_PER_TURN] * 3


def test_offsets_of_very_many_partitions_that_are_not_there_are_refused_in_no_time(
    client: TransactionalClient,
) -> None:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
        name="t", partitions=[partition(partition_index=index) for index in range(45_000)]
    )
    request = TxnOffsetCommitRequest(
        transactional_id=client.id,
        group_id="g",
        producer_id=client.producer[0],
        producer_epoch=client.producer[1],
        topics=[topic],
    )
    began = time.process_time()
    answer = client.broker.ask(request, TxnOffsetCommitResponse, 5)
    assert time.process_time() - began < CPU_S_MAX
    codes = {one.partition_index: one.error_code for topic in answer.topics for one in topic.partitions}
    assert [codes[index] for index in (COUNT, 44_999)] == [UNKNOWN, UNKNOWN]


def test_very_many_producers_are_looked_for_in_no_time() -> None:
    known = [Transaction(str(at), at) for at in range(5_000)]
    request = ListTransactionsRequest(
        producer_id_filters=list(range(4_999, 200_000)), state_filters=["Empty"], duration_filter=-1
    )
    began = time.process_time()
    found = list_transactions(known, request, 0)
    assert time.process_time() - began < CPU_S_MAX
    assert [one.producer_id for one in found.transaction_states] == [4_999]


# ---- markers that are late


def test_a_disk_that_is_full_is_reported_once_for_all_partitions_of_a_transaction(
    client: TransactionalClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker = client.broker
    touch_all(client)
    refuse_writes(broker)
    with caplog.at_level(logging.WARNING, marker_sender.__name__):
        assert client.end(committed=True) is NONE
        broker.loop.advance(2.5)
    assert len(caplog.records) == 3
    assert broker.transactions.markers_waiting == COUNT
    assert broker.services.markers.counters.markers_retried == 3 * COUNT
    broker.disk.observer = None
    broker.loop.advance(1)
    assert (client.state, broker.transactions.markers_waiting) == ("CompleteCommit", 0)


def test_markers_that_wait_when_the_broker_stops_wait_for_its_next_start(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker()
    broker.create("t", flush_messages="1")
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    client.produce("t", b"a")

    async def end_and_stop() -> None:
        broker.transactions.call(
            client.id,
            lambda machine, token: machine.abort(token, client.id, now_ms=broker.loop.clock.now_ms()),
            respond=lambda _: None,
            fail=lambda _: None,
        )
        assert broker.transactions.markers_waiting == 1
        broker.transactions.close()
        broker.partition("t").close()

    with caplog.at_level(logging.WARNING, marker_sender.__name__):
        broker.loop.run_until_complete(end_and_stop())
        broker.loop.advance(5)
    assert (caplog.records, broker.transactions.markers_waiting) == ([], 0)
    again = start_broker(disk=broker.disk.kill())
    find_coordinator(again)
    again.loop.run_until_idle()
    assert TransactionalClient(again).state == "CompleteAbort"
    assert committed_values(again, "t") == []
    assert stable(again, "t")[0] == stable(again, "t")[1]


def test_a_partition_that_knows_a_later_coordinator_is_not_taken_for_told(
    client: TransactionalClient,
) -> None:
    """An operator gave a coordinator epoch of his own (KIP-664): what is open there must not be left open."""
    broker = client.broker

    def write_marker(epoch: int, *, committed: bool) -> ErrorCode:
        wanted = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=client.producer[0],
            producer_epoch=epoch,
            transaction_result=committed,
            coordinator_epoch=7,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
        answer = broker.ask(WriteTxnMarkersRequest(markers=[wanted]), WriteTxnMarkersResponse, 1)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert write_marker(client.producer[1], committed=False) is NONE
    assert client.produce("t", b"a") is NONE
    assert client.end(committed=True) is NONE
    broker.loop.advance(5)
    assert (client.state, committed_values(broker, "t")) == ("PrepareCommit", [])
    assert write_marker(client.producer[1], committed=True) is NONE
    broker.loop.advance(1.1)
    assert (client.state, committed_values(broker, "t")) == ("CompleteCommit", [b"a"])


# ---- topics that come and go


@pytest.mark.parametrize("committed", [True, False])
def test_a_topic_that_is_made_by_writing_to_it_takes_part_at_once(
    start_broker: StartBroker, committed: bool
) -> None:
    """`flint.auto.create.topics.on.produce` (KIP-890: the batch itself adds its partition)."""
    broker = start_broker({"flint.auto.create.topics.on.produce": "true"})
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    assert client.produce("new", b"a") is NONE
    assert client.partitions == [("new", 0)]
    assert client.end(committed=committed) is NONE
    assert committed_values(broker, "new") == ([b"a"] if committed else [])


def test_a_marker_that_finds_another_topic_of_the_same_name_does_no_harm(client: TransactionalClient) -> None:
    """As in Kafka, where markers name topics by name: it ends nothing there."""
    broker, topics = client.broker, client.broker.services.topics
    assert client.produce("t", b"a") is NONE
    refuse_writes(broker)
    assert client.end(committed=False) is NONE
    broker.loop.run_until_complete(topics.delete(topics.find("t")))
    broker.disk.observer = None
    broker.create("t")
    other = TransactionalClient(broker, "other")
    assert (other.init(), other.produce("t", b"b")) == (NONE, NONE)
    broker.loop.advance(1.1)
    assert (client.state, other.state) == ("CompleteAbort", "Ongoing")
    assert (client.produce("t", b"c"), client.end(committed=True)) == (NONE, NONE)
    assert other.end(committed=True) is NONE
    assert committed_values(broker, "t") == [b"b", b"c"]


def test_readers_are_woken_by_the_end_of_what_kept_them_waiting(start_broker: StartBroker) -> None:
    """Also where the marker counts only once it is synced."""
    broker = start_broker()
    broker.create("t", flush_messages="1")
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    client.produce("t", b"a")
    woken: list[int] = []

    class Reader:
        def records_arrived(self, partition: object, size: int) -> None:
            woken.append(broker.partition("t").log.last_stable_offset)

    async def wait() -> None:
        broker.partition("t").park(Reader())
        await asyncio.sleep(0)

    broker.loop.run_until_complete(wait())
    assert client.end(committed=True) is NONE
    broker.loop.run_until_idle()
    assert woken[-1] == 2


# ---- what is not a client's


@pytest.mark.parametrize("version", range(4))
def test_a_client_does_not_add_partitions_that_only_coordinators_write_to(
    client: TransactionalClient, version: int
) -> None:
    internal = ("__transaction_state", 0)
    assert client.add(("t", 0), internal, version=version) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert client.state == "Empty"


def test_records_for_an_internal_topic_begin_no_transaction(client: TransactionalClient) -> None:
    assert client.produce("__transaction_state", b"a") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.state == "Empty"
