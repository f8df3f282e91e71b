"""AddPartitionsToTxn and Produce: which records may be part of a transaction (N1; KIP-98, KIP-588, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    ProduceResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.transactional import (
    TransactionalClient,
    codes_added,
    committed_values,
    find_coordinator,
    produce_of,
    produced,
    stable,
    transactional_batch,
)

StartBroker = Callable[..., SingleBroker]
Added = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

NONE = ErrorCode.NONE
VERIFIED = range(3, 12)
"""Versions of Produce whose partitions the client has to add."""


@pytest.fixture
def client(broker: SingleBroker) -> TransactionalClient:
    broker.create("t", 2)
    broker.create("u")
    find_coordinator(broker)
    client = TransactionalClient(broker)
    assert client.init() is NONE
    return client


# ---- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
def test_partitions_that_are_added_begin_the_transaction(client: TransactionalClient, version: int) -> None:
    client.broker.loop.advance(5)
    assert client.add(("t", 0), ("u", 0), version=version) == {("t", 0): NONE, ("u", 0): NONE}
    assert client.add(("t", 1), version=version) == {("t", 1): NONE}
    assert (client.state, client.partitions) == ("Ongoing", [("t", 0), ("t", 1), ("u", 0)])
    assert client.describe().transaction_start_time_ms == client.broker.loop.clock.now_ms()


def test_partitions_that_take_part_already_are_not_written_again(client: TransactionalClient) -> None:
    client.add(("t", 0), ("t", 1))
    shard = client.broker.transactions.shard_of(client.id)
    assert shard is not None
    before = shard.partition.log.end_offset
    assert client.add(("t", 1)) == {("t", 1): NONE}
    assert shard.partition.log.end_offset == before


@pytest.mark.parametrize("version", range(6))
def test_if_one_partition_is_not_there_none_is_added(client: TransactionalClient, version: int) -> None:
    codes = client.add(("t", 0), ("t", 7), ("nowhere", 0), version=version)
    assert codes == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert client.state == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_others_cannot_add_partitions(client: TransactionalClient, version: int) -> None:
    before = client.producer
    client.init()
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.add(("t", 0), version=version, producer=before) == {("t", 0): fenced}
    stranger = (before[0] + 1_000, 0)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.add(("t", 0), version=version, producer=stranger) == {("t", 0): mapping}
    nobody = TransactionalClient(client.broker, "nobody")
    assert nobody.add(("t", 0), version=version, producer=stranger) == {("t", 0): mapping}
    assert client.state == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_of_one_request_are_answered_one_by_one(
    client: TransactionalClient, version: int
) -> None:
    other = TransactionalClient(client.broker, "other")
    other.init()
    request = AddPartitionsToTxnRequest(
        transactions=[
            Added(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                topics=[Topic(name=topic, partitions=[0])],
            )
            for name, producer, topic in (
                (client.id, client.producer, "t"),
                ("nobody", (9, 9), "t"),
                ("other", other.producer, "nowhere"),
            )
        ]
    )
    answer = client.broker.ask(request, AddPartitionsToTxnResponse, version)
    assert {
        one.transactional_id: codes_added(one.topic_results) for one in answer.results_by_transaction
    } == {
        client.id: {("t", 0): NONE},
        "nobody": {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        "other": {("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert (client.state, other.state) == ("Ongoing", "Empty")


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_that_only_verifies_is_told_and_nothing_is_added(
    client: TransactionalClient, version: int
) -> None:
    client.add(("t", 0))
    codes = client.add(("t", 0), ("t", 1), version=version, verify_only=True)
    assert codes == {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
    assert client.partitions == [("t", 0)]


# ---- Produce


@pytest.mark.parametrize("version", VERIFIED)
def test_records_for_a_partition_that_was_not_added_are_refused(
    client: TransactionalClient, version: int
) -> None:
    """KIP-890, the first part; with the code that the client's version knows."""
    code = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    client.add(("t", 1))
    assert client.produce("t", version=version) is code
    assert stable(client.broker, "t") == (0, 0)
    assert client.partitions == [("t", 1)]


@pytest.mark.parametrize("version", VERIFIED)
def test_records_for_a_partition_that_was_added_wait_for_the_end(
    client: TransactionalClient, version: int
) -> None:
    client.add(("t", 0))
    assert client.produce("t", b"a", version=version) is NONE
    assert client.produce("t", b"b", version=version) is NONE
    assert (stable(client.broker, "t"), committed_values(client.broker, "t")) == ((0, 2), [])
    assert client.end(committed=True, version=3) is NONE
    assert committed_values(client.broker, "t") == [b"a", b"b"]


@pytest.mark.parametrize("version", [12, 13])
def test_newer_producers_add_their_partitions_by_writing_to_them(
    client: TransactionalClient, version: int
) -> None:
    """KIP-890, the second part."""
    assert client.produce("t", b"a", version=version) is NONE
    assert client.produce("t", b"b", partition=1, version=version) is NONE
    assert (client.state, client.partitions) == ("Ongoing", [("t", 0), ("t", 1)])
    assert client.end(committed=True) is NONE
    assert committed_values(client.broker, "t") + committed_values(client.broker, "t", 1) == [b"a", b"b"]


@pytest.mark.parametrize("version", [11, 12])
def test_a_request_with_records_of_two_producers_is_refused_whole(
    client: TransactionalClient, version: int
) -> None:
    client.add(("t", 0))
    other = (client.producer[0] + 1, 0)
    batches = {
        ("t", 0): transactional_batch(producer=client.producer),
        ("t", 1): transactional_batch(producer=other),
    }
    request = produce_of(client.broker, batches, version)
    codes = produced(client.broker.ask(request, ProduceResponse, version))
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert (stable(client.broker, "t"), stable(client.broker, "t", 1)) == ((0, 0), (0, 0))


def test_of_one_request_a_missing_partition_is_refused_alone(client: TransactionalClient) -> None:
    batches = {
        place: transactional_batch(producer=client.producer) for place in (("t", 0), ("t", 9), ("nowhere", 0))
    }
    codes = produced(client.broker.ask(produce_of(client.broker, batches, 12), ProduceResponse, 12))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [NONE, unknown, unknown]
    assert client.partitions == [("t", 0)]


def test_where_a_producer_is_not_known_its_records_begin_at_sequence_zero(
    client: TransactionalClient,
) -> None:
    """A batch that was delayed past the end of its transaction cannot open the next one (KIP-890)."""
    assert client.produce("t", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stable(client.broker, "t") == (0, 0)
    assert client.produce("t", sequence=0) is NONE


def test_older_producers_may_go_on_where_they_are_forgotten(client: TransactionalClient) -> None:
    client.add(("t", 0))
    assert client.produce("t", sequence=5, version=11) is NONE


@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused(
    client: TransactionalClient, committed: bool
) -> None:
    """The end has bumped the epoch, also in partitions that the batch is the first for (KIP-890)."""
    client.produce("t", b"a")
    before = client.producer
    assert client.end(committed=committed) is NONE
    for partition, sequence in ((0, 1), (1, 0)):
        code = client.produce("t", b"late", partition=partition, producer=before, sequence=sequence)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.state == ("CompleteCommit" if committed else "CompleteAbort")
    assert committed_values(client.broker, "t") == ([b"a"] if committed else [])


def test_a_batch_that_is_sent_twice_is_written_once(client: TransactionalClient) -> None:
    assert client.produce("t", b"a", sequence=0) is NONE
    assert client.produce("t", b"a", sequence=0) is NONE
    client.end(committed=True)
    assert committed_values(client.broker, "t") == [b"a"]


def test_the_next_transaction_begins_at_once_though_the_markers_are_still_being_synced(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    broker.create("t", flush_messages="1")
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    shard = broker.transactions.shard_of(client.id)
    assert shard is not None
    for value in (b"a", b"b", b"c"):
        assert client.produce("t", value) is NONE
        assert client.end(committed=True) is NONE
        known = shard.machine.get(client.id)
        assert known is not None
        assert known.is_decided, "there is nothing to wait for"
    broker.loop.run_until_idle()
    assert (client.state, committed_values(broker, "t")) == ("CompleteCommit", [b"a", b"b", b"c"])


def test_a_batch_that_is_still_being_recompressed_when_its_transaction_ends_is_not_written(
    broker: SingleBroker,
) -> None:
    broker.create("t", compression_type="gzip")
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    batch = transactional_batch(b"late", producer=client.producer)
    end = EndTxnRequest(
        transactional_id=client.id,
        producer_id=client.producer[0],
        producer_epoch=client.producer[1],
        committed=True,
    )

    async def race() -> tuple[ErrorCode, ErrorCode]:
        # While somebody has the lane no batch is opened.
        async with broker.services.batch_validation:
            request = produce_of(broker, {("t", 0): batch}, 12)
            late = asyncio.ensure_future(broker.exchange(request, ProduceResponse, 12))
            # In virtual time: whatever can happen by itself has happened then.
            await asyncio.sleep(0.001)
            assert broker.transactions.takes_part(client.id, *client.producer, ("t", 0))
            ended = await broker.exchange(end, EndTxnResponse, 5)
        (code,) = produced(await late)
        return ErrorCode(ended.error_code), code

    assert broker.loop.run_until_complete(race()) == (NONE, ErrorCode.INVALID_TXN_STATE)
    assert (committed_values(broker, "t"), stable(broker, "t")) == ([], (1, 1)), "more than the marker"


def test_a_producer_outside_of_transactions_is_not_asked_for_one(client: TransactionalClient) -> None:
    client.broker.append("t", 1_700_000_000_000, producer_id=77)
    assert client.produce("t", b"a") is NONE
    assert stable(client.broker, "t") == (1, 2)
