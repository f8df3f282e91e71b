"""Transactions from outside, against brokers that answer as told (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flintmq.client.admin.transactions import (
    OpenTransaction,
    abort_hanging,
    abort_transaction,
    describe_transaction,
    find_hanging,
    list_transactions,
    open_transactions,
    owners,
)
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import NotFlintMQ
from flintmq.errors import ErrorCode, ProtocolError, RequestError, UnsupportedVersion
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MetadataRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.broker.scripted_broker import ScriptedBroker, TestClock, metadata, scripted_client

Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState
Partition = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState

OLD_MS, RECENT_MS = 0, 999_999


def open_at(
    offset: int, *, producer_id: int = 5, last_ms: int = OLD_MS, coordinator_epoch: int = -1
) -> Producer:
    return Producer(
        producer_id=producer_id,
        producer_epoch=2,
        last_timestamp=last_ms,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=offset,
    )


def producers(*partitions: Sequence[Producer]) -> Callable[[DescribeProducersRequest], Message]:
    """Of topic t, by partition; each answer tells of those that were asked for."""

    def answer(request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                DescribeProducersResponse.TopicResponse(
                    name=topic.name,
                    partitions=[
                        Partition(partition_index=index, active_producers=list(partitions[index]))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def listing(**producer_ids: int) -> Callable[[ListTransactionsRequest], ListTransactionsResponse]:
    def answer(request: ListTransactionsRequest) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            transaction_states=[
                Listed(transactional_id=name, producer_id=producer_id, transaction_state="Ongoing")
                for name, producer_id in producer_ids.items()
                if not request.producer_id_filters or producer_id in request.producer_id_filters
            ]
        )

    return answer


def describing(**partitions: list[int]) -> Callable[[DescribeTransactionsRequest], Message]:
    """Of topic t, by transactional id."""

    def answer(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        states = []
        for name in request.transactional_ids:
            state = Described(transactional_id=name, transaction_state="Ongoing", producer_id=5)
            if name in partitions:
                state.topics = [
                    DescribeTransactionsResponse.TopicData(topic="t", partitions=partitions[name])
                ]
            else:
                state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            states.append(state)
        return DescribeTransactionsResponse(transaction_states=states)

    return answer


def connected(
    answers: dict[type[Message], Any], *, partitions: int = 2, brokers: int = 1, **fields: Any
) -> tuple[ScriptedBroker, ClusterClient]:
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(partitions, brokers=brokers),
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(node_id=0, host="n0", port=9092),
            **answers,
        },
        **fields,
    )
    client = scripted_client(broker, TestClock())
    client.topic("t")
    return broker, client


def test_transactions_of_all_brokers_are_listed_by_name_with_who_looks_after_them() -> None:
    told = iter([listing(b=1), listing(a=2)])
    _, client = connected({ListTransactionsRequest: lambda request: next(told)(request)}, brokers=2)
    found = list_transactions(client, states=["Ongoing"])
    assert [(one.id, one.producer_id, one.coordinator) for one in found] == [("a", 2, 1), ("b", 1, 0)]


@pytest.mark.parametrize("fields", [{"older_than_ms": 1}, {"pattern": "a.*"}])
def test_a_broker_that_is_too_old_for_a_filter_is_not_asked_without_it(fields: dict[str, Any]) -> None:
    broker, client = connected(
        {ListTransactionsRequest: listing(a=1)}, versions={ListTransactionsRequest: (0, 0)}
    )
    with pytest.raises(UnsupportedVersion):
        list_transactions(client, **fields)
    assert not any(isinstance(one, ListTransactionsRequest) for one in broker.requests)
    assert [one.id for one in list_transactions(client)] == ["a"]


def test_a_transaction_is_described_by_its_coordinator() -> None:
    broker, client = connected({DescribeTransactionsRequest: describing(a=[1, 0])})
    found = describe_transaction(client, "a")
    assert (found.id, found.partitions, found.coordinator) == ("a", (("t", 0), ("t", 1)), 0)
    (asked,) = [one for one in broker.requests if isinstance(one, FindCoordinatorRequest)]
    assert (asked.key, asked.key_type) == ("a", 1)
    with pytest.raises(RequestError, match="there is no transactional id b") as caught:
        describe_transaction(client, "b")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_answer_about_something_else_is_not_believed() -> None:
    _, client = connected({DescribeTransactionsRequest: lambda _: DescribeTransactionsResponse()})
    with pytest.raises(ProtocolError, match="not about a alone"):
        describe_transaction(client, "a")


def test_a_broker_of_another_kind_cannot_abort_by_id_and_that_is_said() -> None:
    _, client = connected({AbortTransactionRequest: lambda _: ConnectionResetError(104, "reset")})
    with pytest.raises(NotFlintMQ):
        abort_transaction(client, "a")


def test_an_abort_is_asked_for_once() -> None:
    """A second one might end the next transaction."""
    refusal = AbortTransactionResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message="no")
    broker, client = connected({AbortTransactionRequest: lambda _: refusal})
    with pytest.raises(RequestError, match="no"):
        abort_transaction(client, "a")
    assert sum(isinstance(one, AbortTransactionRequest) for one in broker.requests) == 1


def test_an_abort_waits_while_the_coordinator_is_loaded() -> None:
    loading = AbortTransactionResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    told = iter([loading, AbortTransactionResponse()])
    broker, client = connected({AbortTransactionRequest: lambda _: next(told)})
    abort_transaction(client, "a")
    assert sum(isinstance(one, AbortTransactionRequest) for one in broker.requests) == 2


def test_open_transactions_are_told_by_partition_and_those_of_ended_ones_left_out() -> None:
    ended = open_at(-1, producer_id=6)
    _, client = connected({DescribeProducersRequest: producers([ended, open_at(3)], [open_at(9)])})
    found = open_transactions(client, [("t", 1), ("t", 0)])
    assert [(one.topic_partition, one.start_offset, one.epoch) for one in found] == [
        (("t", 1), 9, 2),
        (("t", 0), 3, 2),
    ]


def test_partitions_that_do_not_fit_into_one_answer_are_asked_for_again() -> None:
    def answer(request: DescribeProducersRequest) -> DescribeProducersResponse:
        (topic,) = request.topics
        first, *rest = topic.partition_indexes
        told = [Partition(partition_index=first, active_producers=[open_at(first)])]
        told += [Partition(partition_index=index, error_code=ErrorCode.INVALID_REQUEST) for index in rest]
        return DescribeProducersResponse(
            topics=[DescribeProducersResponse.TopicResponse(name="t", partitions=told)]
        )

    broker, client = connected({DescribeProducersRequest: answer}, partitions=3)
    found = open_transactions(client, [("t", 0), ("t", 1), ("t", 2)])
    assert [one.start_offset for one in found] == [0, 1, 2]
    assert sum(isinstance(one, DescribeProducersRequest) for one in broker.requests) == 3


def test_a_partition_that_is_always_refused_is_not_asked_for_ever() -> None:
    refused = Partition(partition_index=0, error_code=ErrorCode.INVALID_REQUEST, error_message="never")
    topic = DescribeProducersResponse.TopicResponse(name="t", partitions=[refused])
    _, client = connected({DescribeProducersRequest: lambda _: DescribeProducersResponse(topics=[topic])})
    with pytest.raises(RequestError, match="never"):
        open_transactions(client, [("t", 0)])


def found_hanging(
    answers: dict[type[Message], Any], *partitions: Sequence[Producer]
) -> list[tuple[int, int]]:
    """Partitions and start offsets of those older than 15 minutes."""
    _, client = connected({DescribeProducersRequest: producers(*partitions), **answers})
    found = find_hanging(client, [("t", 0), ("t", 1)], older_than_ms=900_000)
    return [(one.partition, one.start_offset) for one in found]


def test_what_no_coordinator_knows_hangs_once_it_is_old() -> None:
    answers: dict[type[Message], Any] = {ListTransactionsRequest: listing()}
    recent = open_at(7, producer_id=6, last_ms=RECENT_MS)
    assert found_hanging(answers, [open_at(3), recent], []) == [(0, 3)]


def test_what_its_coordinator_will_end_does_not_hang() -> None:
    answers: dict[type[Message], Any] = {
        ListTransactionsRequest: listing(a=5),
        DescribeTransactionsRequest: describing(a=[0]),
    }
    # In the other partition nobody will: the coordinator does not have it.
    assert found_hanging(answers, [open_at(3)], [open_at(9)]) == [(1, 9)]


def test_an_id_that_is_gone_when_it_is_described_knows_nothing() -> None:
    answers: dict[type[Message], Any] = {
        ListTransactionsRequest: listing(a=5),
        DescribeTransactionsRequest: describing(),
    }
    assert found_hanging(answers, [open_at(3)], []) == [(0, 3)]


def test_what_ended_while_it_was_looked_for_does_not_hang() -> None:
    told = iter([producers([open_at(3)], []), producers([open_at(-1)], [])])
    answers: dict[type[Message], Any] = {
        ListTransactionsRequest: listing(),
        DescribeProducersRequest: lambda request: next(told)(request),
    }
    assert found_hanging(answers) == []


def test_nobody_is_asked_about_nothing() -> None:
    broker, client = connected({ListTransactionsRequest: listing()})
    assert owners(client, []) == {}
    assert not any(isinstance(one, ListTransactionsRequest) for one in broker.requests)


def marked(code: ErrorCode, partition: int = 0) -> WriteTxnMarkersResponse:
    one = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
    topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name="t", partitions=[one])
    return WriteTxnMarkersResponse(
        markers=[WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=5, topics=[topic])]
    )


@pytest.mark.parametrize(("known", "sent"), [(-1, 0), (4, 4)])
def test_a_hanging_transaction_is_ended_in_its_last_coordinator_s_name(known: int, sent: int) -> None:
    broker, client = connected({WriteTxnMarkersRequest: lambda _: marked(ErrorCode.NONE)})
    abort_hanging(client, OpenTransaction("t", 0, 5, 2, known, 3, OLD_MS))
    ((marker,),) = [one.markers for one in broker.requests if isinstance(one, WriteTxnMarkersRequest)]
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (5, 2, False)
    # Of the first generation, which may end a transaction under its own epoch.
    assert (marker.coordinator_epoch, marker.transaction_version) == (sent, 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (marked(ErrorCode.TRANSACTION_COORDINATOR_FENCED), RequestError),
        (marked(ErrorCode.NONE, partition=1), ProtocolError),
        (WriteTxnMarkersResponse(), ProtocolError),
    ],
)
def test_a_marker_that_was_not_written_is_told(answer: Message, error: type[Exception]) -> None:
    _, client = connected({WriteTxnMarkersRequest: lambda _: answer})
    with pytest.raises(error):
        abort_hanging(client, OpenTransaction("t", 0, 5, 2, -1, 3, OLD_MS))
