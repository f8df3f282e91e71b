"""DescribeTransactions, ListTransactions and DescribeProducers: what an operator is told (KIP-664, KIP-994)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.transactional import TransactionalClient, described, find_coordinator


@pytest.fixture
def ids(broker: SingleBroker) -> dict[str, TransactionalClient]:
    """One of each: empty, open for a minute, open, committed, aborted."""
    broker.create("t", 2)
    find_coordinator(broker)
    names = ("empty", "old", "open", "committed", "aborted")
    clients = {name: TransactionalClient(broker, name) for name in names}
    for client in clients.values():
        client.init(transaction_timeout_ms=600_000)
    clients["old"].produce("t", b"v", partition=1)
    broker.loop.advance(60)
    for name in ("open", "committed", "aborted"):
        clients[name].produce("t", b"v")
    clients["committed"].end(committed=True)
    clients["aborted"].end(committed=False)
    return clients


def listed(broker: SingleBroker, version: int = 2, **filters: Any) -> list[str]:
    answer = broker.ask(ListTransactionsRequest(**filters), ListTransactionsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return sorted(one.transactional_id for one in answer.transaction_states)


@pytest.mark.parametrize("version", range(3))
def test_all_are_listed_with_their_states_and_producers(
    broker: SingleBroker, ids: dict[str, TransactionalClient], version: int
) -> None:
    answer = broker.ask(ListTransactionsRequest(), ListTransactionsResponse, version)
    found = {one.transactional_id: one for one in answer.transaction_states}
    assert {name: one.transaction_state for name, one in found.items()} == {
        "empty": "Empty",
        "old": "Ongoing",
        "open": "Ongoing",
        "committed": "CompleteCommit",
        "aborted": "CompleteAbort",
    }
    assert {name: one.producer_id for name, one in found.items()} == {
        name: client.producer[0] for name, client in ids.items()
    }


@pytest.mark.parametrize("version", range(3))
def test_they_are_listed_by_state_and_by_producer(
    broker: SingleBroker, ids: dict[str, TransactionalClient], version: int
) -> None:
    assert listed(broker, version, state_filters=["Ongoing", "Empty"]) == ["empty", "old", "open"]
    wanted = [ids["old"].producer[0], ids["committed"].producer[0]]
    assert listed(broker, version, producer_id_filters=wanted) == ["committed", "old"]
    assert listed(broker, version, producer_id_filters=wanted, state_filters=["Ongoing"]) == ["old"]


def test_a_state_that_there_is_not_is_named(broker: SingleBroker, ids: object) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"])
    answer = broker.ask(request, ListTransactionsResponse, 2)
    assert answer.unknown_state_filters == ["Sleeping"]
    assert len(answer.transaction_states) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_they_are_listed_by_age(broker: SingleBroker, ids: object, version: int) -> None:
    states = ["Ongoing", "CompleteCommit", "CompleteAbort"]
    assert listed(broker, version, state_filters=states, duration_filter=30_000) == ["old"]
    broker.loop.advance(31)
    assert len(listed(broker, version, state_filters=states, duration_filter=30_000)) == 4


def test_they_are_listed_by_name(broker: SingleBroker, ids: object) -> None:
    assert listed(broker, transactional_id_pattern="o.*") == ["old", "open"]
    assert listed(broker, transactional_id_pattern="(committ|abort)ed") == ["aborted", "committed"]
    assert listed(broker, transactional_id_pattern="pen") == []


def test_a_pattern_that_is_none_is_refused_whatever_there_is(broker: SingleBroker) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="[")
    answer = broker.ask(request, ListTransactionsResponse, 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_they_are_described_one_by_one(broker: SingleBroker, ids: dict[str, TransactionalClient]) -> None:
    old, nobody, empty, unnamed = described(broker, "old", "nobody", "empty", "")
    now_ms = broker.loop.clock.now_ms()
    assert (old.error_code, old.transaction_state) == (0, "Ongoing")
    assert (old.producer_id, old.producer_epoch) == ids["old"].producer
    assert (old.transaction_timeout_ms, now_ms - old.transaction_start_time_ms) == (600_000, 60_000)
    assert [(topic.topic, topic.partitions) for topic in old.topics] == [("t", [1])]
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
    assert unnamed.error_code == ErrorCode.INVALID_REQUEST


def test_partitions_tell_where_open_transactions_began_and_who_ended_the_others(
    broker: SingleBroker, ids: dict[str, TransactionalClient]
) -> None:
    wanted = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1])
    answer = broker.ask(DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse, 0)
    first, second = answer.topics[0].partitions
    began = {one.producer_id: one.current_txn_start_offset for one in first.active_producers}
    assert began == {
        ids["open"].producer[0]: 0,
        ids["committed"].producer[0]: -1,
        ids["aborted"].producer[0]: -1,
    }
    (old,) = second.active_producers
    assert (old.producer_id, old.producer_epoch) == ids["old"].producer
    assert (old.current_txn_start_offset, old.coordinator_epoch) == (0, -1)
    committed = next(one for one in first.active_producers if one.producer_id == ids["committed"].producer[0])
    shard = broker.transactions.shard_of("committed")
    assert shard is not None
    assert committed.coordinator_epoch == shard.partition.leader_epoch
