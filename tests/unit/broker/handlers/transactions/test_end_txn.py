"""How transactions end: by their producer, by an operator, by the clock, and in spite of what goes wrong (N1)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.transactional import (
    LAST_CLIENT_EPOCH,
    TIMEOUT_MS,
    Place,
    TransactionalClient,
    committed_values,
    find_coordinator,
    stable,
)

StartBroker = Callable[..., SingleBroker]

NONE = ErrorCode.NONE
NOW = 1_700_000_000_000


@pytest.fixture
def client(broker: SingleBroker) -> TransactionalClient:
    broker.create("t", 2)
    find_coordinator(broker)
    client = TransactionalClient(broker)
    assert client.init() is NONE
    return client


# ---- EndTxn


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_the_end_is_in_all_partitions_when_it_is_answered(
    client: TransactionalClient, version: int, committed: bool
) -> None:
    client.produce("t", b"a")
    client.produce("t", b"b", partition=1)
    assert client.end(committed=committed, version=version) is NONE
    assert stable(client.broker, "t") == stable(client.broker, "t", 1) == (2, 2)
    values = committed_values(client.broker, "t") + committed_values(client.broker, "t", 1)
    assert values == ([b"a", b"b"] if committed else [])
    assert client.state == ("CompleteCommit" if committed else "CompleteAbort")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_the_first_generation_keeps_its_epoch_and_may_ask_again(
    client: TransactionalClient, version: int, committed: bool
) -> None:
    client.produce("t", b"a")
    before = client.producer
    assert client.end(committed=committed, version=version) is NONE
    assert client.end(committed=committed, version=version) is NONE
    assert client.end(committed=not committed, version=version) is ErrorCode.INVALID_TXN_STATE
    found = client.describe()
    assert (found.producer_id, found.producer_epoch) == before
    assert stable(client.broker, "t") == (2, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_the_second_generation_gets_another_epoch_and_the_same_one_when_it_asks_again(
    client: TransactionalClient, committed: bool
) -> None:
    """KIP-890."""
    client.produce("t", b"a")
    before = client.producer
    assert client.end(committed=committed) is NONE
    assert client.producer == (before[0], before[1] + 1)
    assert client.end(committed=committed, producer=before) is NONE
    assert client.producer == (before[0], before[1] + 1)
    assert client.end(committed=not committed, producer=before) is ErrorCode.INVALID_TXN_STATE
    assert stable(client.broker, "t") == (2, 2)


def test_when_epochs_run_out_the_end_gives_another_producer_id(client: TransactionalClient) -> None:
    client.exhaust()
    client.produce("t", b"a")
    before = client.producer
    assert client.end(committed=True) is NONE
    assert client.producer[0] != before[0]
    assert client.producer[1] == 0
    after = client.producer
    assert client.end(committed=True, producer=before) is NONE
    assert client.producer == after
    assert client.produce("t", b"b") is client.end(committed=True) is NONE
    assert committed_values(client.broker, "t") == [b"a", b"b"]


def test_nothing_can_be_aborted_but_not_committed(client: TransactionalClient) -> None:
    assert client.end(committed=True) is ErrorCode.INVALID_TXN_STATE
    assert client.end(committed=False) is NONE
    assert client.producer[1] == 1


@pytest.mark.parametrize("version", range(6))
def test_others_cannot_end_it(client: TransactionalClient, version: int) -> None:
    before = client.producer
    client.init()
    client.produce("t", b"a")
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end(committed=True, version=version, producer=before) is fenced
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.end(committed=True, version=version, producer=(before[0] + 1_000, 0)) is mapping
    nobody = TransactionalClient(client.broker, "nobody")
    assert nobody.end(committed=True, version=version, producer=before) is mapping
    assert client.state == "Ongoing"


# ---- WriteTxnMarkers


def write_marker(
    broker: SingleBroker,
    *places: Place,
    producer: tuple[int, int] = (8, 0),
    committed: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    version: int = 1,
) -> dict[Place, ErrorCode]:
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
            for topic, index in places
        ],
    )
    answer = broker.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, version)
    (result,) = answer.markers
    assert result.producer_id == producer[0]
    return {
        (topic.name, one.partition_index): ErrorCode(one.error_code)
        for topic in result.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_s_marker_ends_the_transaction_in_its_partition(
    broker: SingleBroker, version: int, committed: bool
) -> None:
    broker.create("t")
    broker.append("t", NOW, producer_id=8, transactional=True)
    assert stable(broker, "t") == (0, 1)
    codes = write_marker(broker, ("t", 0), ("t", 5), ("nowhere", 0), committed=committed, version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): NONE, ("t", 5): unknown, ("nowhere", 0): unknown}
    assert stable(broker, "t") == (2, 2)
    assert committed_values(broker, "t") == ([b"value"] if committed else [])


def test_markers_of_the_past_are_refused(broker: SingleBroker) -> None:
    broker.create("t")
    write_marker(broker, ("t", 0), producer=(8, 3), coordinator_epoch=2)
    stale = write_marker(broker, ("t", 0), producer=(8, 2), coordinator_epoch=2)
    assert stale == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    stale = write_marker(broker, ("t", 0), producer=(8, 3), coordinator_epoch=1)
    assert stale == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}


def test_a_marker_of_the_second_generation_has_an_epoch_of_its_own(broker: SingleBroker) -> None:
    """A marker that was delayed past the next transaction's beginning cannot end it (KIP-890)."""
    broker.create("t")
    broker.append("t", NOW, producer_id=8, transactional=True)
    stale = write_marker(broker, ("t", 0), version=2, transaction_version=2)
    assert stale == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert stable(broker, "t") == (0, 1)
    assert write_marker(broker, ("t", 0), producer=(8, 1), version=2, transaction_version=2) == {
        ("t", 0): NONE
    }
    assert stable(broker, "t") == (2, 2)


# ---- AbortTransaction


def abort(broker: SingleBroker, name: str) -> tuple[ErrorCode, str | None]:
    request = AbortTransactionRequest(transactional_id=name)
    answer = broker.ask(request, AbortTransactionResponse, 0)
    return ErrorCode(answer.error_code), answer.error_message


def test_an_operator_ends_an_open_transaction_and_fences_its_producer(client: TransactionalClient) -> None:
    client.produce("t", b"a")
    assert abort(client.broker, client.id) == (NONE, None)
    assert (client.state, stable(client.broker, "t")) == ("CompleteAbort", (2, 2))
    assert committed_values(client.broker, "t") == []
    assert client.produce("t", b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end(committed=True, version=4) is ErrorCode.PRODUCER_FENCED
    assert client.init() is client.produce("t", b"c") is NONE


def test_an_operator_ends_one_whose_epochs_have_run_out(client: TransactionalClient) -> None:
    client.exhaust()
    client.produce("t", b"a")
    assert abort(client.broker, client.id) == (NONE, None)
    found = client.describe()
    assert (found.transaction_state, found.producer_epoch) == ("CompleteAbort", 0)
    assert found.producer_id != client.producer[0]


def test_what_cannot_be_aborted_is_said_with_its_reason(client: TransactionalClient) -> None:
    assert abort(client.broker, client.id) == (ErrorCode.INVALID_TXN_STATE, "tx has no open transaction.")
    assert abort(client.broker, "no{body}") == (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        "There is no transactional id no{body}.",
    )
    assert abort(client.broker, "")[0] is ErrorCode.INVALID_REQUEST


# ---- time


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(
    client: TransactionalClient,
) -> None:
    client.produce("t", b"a")
    before = client.producer
    client.broker.loop.advance(TIMEOUT_MS / 1000 - 1)
    assert client.state == "Ongoing"
    client.broker.loop.advance(1.1)
    assert (client.state, stable(client.broker, "t")) == ("CompleteAbort", (2, 2))
    assert client.end(committed=True) is ErrorCode.INVALID_TXN_STATE
    assert client.end(committed=True, version=4) is ErrorCode.PRODUCER_FENCED
    assert client.bump(producer=before) is NONE


def test_time_runs_out_under_the_last_epoch_too(client: TransactionalClient) -> None:
    client.exhaust()
    client.produce("t", b"a")
    client.broker.loop.advance(TIMEOUT_MS / 1000 + 0.1)
    client.broker.loop.advance(2)
    found = client.describe()
    assert (found.transaction_state, found.producer_epoch) == ("CompleteAbort", 0)
    assert found.producer_id != client.producer[0]
    assert stable(client.broker, "t") == (2, 2)


def test_a_transaction_that_ended_is_not_timed_out_later(client: TransactionalClient) -> None:
    client.produce("t", b"a")
    client.end(committed=True)
    client.broker.loop.advance(TIMEOUT_MS / 1000 - 1)
    client.produce("t", b"b")
    client.broker.loop.advance(2)
    assert client.state == "Ongoing"
    assert client.end(committed=True) is NONE
    assert committed_values(client.broker, "t") == [b"a", b"b"]


def test_time_goes_on_over_a_restart(client: TransactionalClient, start_broker: StartBroker) -> None:
    client.produce("t", b"a")
    client.broker.loop.advance(TIMEOUT_MS / 1000 - 10)
    again = start_broker(disk=client.broker.disk.kill())
    find_coordinator(again)
    later = TransactionalClient(again)
    assert (later.state, later.partitions) == ("Ongoing", [("t", 0)])
    again.loop.advance(10.1)
    assert (later.state, stable(again, "t")) == ("CompleteAbort", (2, 2))


# ---- what goes wrong


def test_a_topic_that_is_deleted_meanwhile_does_not_keep_the_transaction_from_its_end(
    client: TransactionalClient,
) -> None:
    broker = client.broker
    broker.create("gone")
    client.produce("t", b"a")
    client.produce("gone", b"b")
    topics = broker.services.topics
    broker.loop.run_until_complete(topics.delete(topics.find("gone")))
    assert client.end(committed=True) is NONE
    assert (client.state, committed_values(broker, "t")) == ("CompleteCommit", [b"a"])


def full(broker: SingleBroker, folder: str) -> None:
    """From now on nothing can be written in a folder."""

    def observe(operation: str, path: str) -> None:
        if operation == "write" and f"/{folder}/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    broker.disk.observer = observe


def test_a_marker_that_does_not_fit_on_the_disk_is_written_when_it_does(client: TransactionalClient) -> None:
    broker = client.broker
    client.produce("t", b"a")
    client.produce("t", b"b", partition=1)
    full(broker, "t-1")
    assert client.end(committed=True) is NONE
    # Decided, and told where it could be; the producer has to wait before it goes on.
    assert client.state == "PrepareCommit"
    assert (committed_values(broker, "t"), stable(broker, "t", 1)) == ([b"a"], (0, 1))
    counters = broker.services.markers.counters
    assert (broker.transactions.markers_waiting, counters.markers_committed) == (1, 1)
    assert client.produce("t", b"c") is ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert abort(broker, client.id)[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.loop.advance(30)
    assert client.state == "PrepareCommit"
    broker.disk.observer = None
    broker.loop.advance(1.1)
    assert (client.state, committed_values(broker, "t", 1)) == ("CompleteCommit", [b"b"])
    assert (broker.transactions.markers_waiting, counters.markers_committed) == (0, 2)
    assert counters.markers_retried >= 30
    assert client.produce("t", b"c") is NONE


def test_an_end_that_cannot_be_written_down_has_not_been_decided(client: TransactionalClient) -> None:
    broker = client.broker
    client.produce("t", b"a")
    index = broker.transactions.index_of(client.id)
    full(broker, f"__transaction_state-{index}")
    assert client.end(committed=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (client.state, stable(broker, "t")) == ("Ongoing", (0, 1))
    broker.disk.observer = None
    assert client.end(committed=True) is NONE
    assert committed_values(broker, "t") == [b"a"]


def test_a_time_out_that_cannot_be_written_down_is_tried_again(client: TransactionalClient) -> None:
    broker = client.broker
    client.produce("t", b"a")
    full(broker, f"__transaction_state-{broker.transactions.index_of(client.id)}")
    broker.loop.advance(TIMEOUT_MS / 1000 + 5)
    assert (client.state, stable(broker, "t")) == ("Ongoing", (0, 1))
    broker.disk.observer = None
    broker.loop.advance(1.1)
    assert (client.state, stable(broker, "t")) == ("CompleteAbort", (2, 2))


@pytest.mark.parametrize("committed", [True, False])
def test_what_was_decided_before_a_crash_is_carried_out_after_it(
    client: TransactionalClient, start_broker: StartBroker, committed: bool
) -> None:
    client.produce("t", b"a")
    full(client.broker, "t-0")
    assert client.end(committed=committed) is NONE
    client.broker.disk.observer = None
    again = start_broker(disk=client.broker.disk.kill())
    find_coordinator(again)
    later = TransactionalClient(again)
    assert later.state == ("CompleteCommit" if committed else "CompleteAbort")
    assert stable(again, "t") == (2, 2)
    assert committed_values(again, "t") == ([b"a"] if committed else [])
    later.use(*client.producer)
    assert later.produce("t", b"b") is NONE


def test_an_epoch_is_never_given_twice_over_a_crash(
    client: TransactionalClient, start_broker: StartBroker
) -> None:
    given = {client.producer}
    broker = client.broker
    for _ in range(5):
        broker = start_broker(disk=broker.disk.kill())
        find_coordinator(broker)
        later = TransactionalClient(broker)
        assert later.init() is NONE
        assert later.producer not in given
        assert later.producer[1] < LAST_CLIENT_EPOCH
        given.add(later.producer)
