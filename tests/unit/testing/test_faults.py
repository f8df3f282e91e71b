"""Scripted faults, as a client on the wire sees them (N3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from flintmq.broker.apis import APIS, Api
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.testing import Broker
from flintmq.testing.faults import Faults
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, records_in, values_of
from unit.testing.sample_requests import codes_in, sample_request

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
DELAY_S = 0.2
LONG_S = 60.0


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    broker.create_topic("a")
    broker.create_topic("b")
    with Wire(broker.bootstrap_servers) as connected:
        yield connected


def values(broker: Broker, topic: str = "a") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


# ---- errors


def test_a_request_fails_so_many_times_and_has_no_effect(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    codes = [wire.produce("a", batch_of(b"%d" % attempt)).error_code for attempt in range(3)]
    assert codes == [NOT_LEADER, NOT_LEADER, 0]
    assert values(broker) == [b"2"]
    assert (fault.hits, len(broker.faults)) == (2, 0)


def test_a_fault_may_hold_until_it_is_cleared(broker: Broker, wire: Wire) -> None:
    with broker.faults.fail("Produce", error=NOT_LEADER, times=None) as fault:
        assert [wire.produce("a", batch_of(b"x")).error_code for _ in range(5)] == [NOT_LEADER] * 5
        assert fault.hits == 5
    assert wire.produce("a", batch_of(b"x")).error_code == 0


def test_faults_are_used_up_in_the_order_in_which_they_were_set(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error="REQUEST_TIMED_OUT")
    broker.faults.fail("Produce", error="NOT_ENOUGH_REPLICAS")
    codes = [wire.produce("a", batch_of(b"x")).error_code for _ in range(3)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, 0]


def test_an_error_after_the_effect_is_told_though_the_records_are_there(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", when="after")
    assert wire.produce("a", batch_of(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert values(broker) == [b"x"]


def test_only_the_topic_of_the_fault_fails(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER, topic="a")
    request = produce_request("a", batch_of(b"x"))
    request.topic_data += produce_request("b", batch_of(b"y")).topic_data
    response = wire.ask(request, 9)
    assert isinstance(response, ProduceResponse)
    told = {one.name: one.partition_responses[0].error_code for one in response.responses}
    assert told == {"a": NOT_LEADER, "b": 0}
    assert (values(broker, "a"), values(broker, "b")) == ([], [b"y"])


def test_an_error_after_the_effect_reaches_only_its_topic(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER, topic="a", when="after")
    request = produce_request("a", batch_of(b"x"))
    request.topic_data += produce_request("b", batch_of(b"y")).topic_data
    response = wire.ask(request, 9)
    assert isinstance(response, ProduceResponse)
    told = {one.name: one.partition_responses[0].error_code for one in response.responses}
    assert told == {"a": NOT_LEADER, "b": 0}
    assert (values(broker, "a"), values(broker, "b")) == ([b"x"], [b"y"])


def test_other_topics_and_other_clients_are_left_alone(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER, topic="b")
    broker.faults.fail("Produce", error=NOT_LEADER, client_id="somebody else")
    assert wire.produce("a", batch_of(b"x")).error_code == 0
    assert len(broker.faults) == 2


def test_the_client_of_the_fault_fails(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER, client_id="test")
    assert wire.produce("a", batch_of(b"x")).error_code == NOT_LEADER


def test_a_topic_named_by_its_id_is_recognised(broker: Broker, wire: Wire) -> None:
    topic_id = wire.metadata("a").topics[0].topic_id
    broker.faults.fail("Produce", error=NOT_LEADER, topic="a")
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                topic_id=topic_id,
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch_of(b"x"))],
            )
        ],
    )
    response = wire.ask(request, 13)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partition_responses[0].error_code == NOT_LEADER


def test_without_acknowledgement_an_error_closes_the_connection(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER)
    wire.send(produce_request("a", batch_of(b"x"), acks=0), 9)
    assert wire.is_closed_by_the_broker()
    assert values(broker) == []


def test_metadata_is_true_but_for_the_topic_that_fails(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Metadata", error="LEADER_NOT_AVAILABLE", topic="a", times=2)
    for answer in (wire.metadata("a", "b"), wire.metadata()):
        told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
        assert told == {"a": (ErrorCode.LEADER_NOT_AVAILABLE, 0), "b": (0, 1)}
        assert [one.port for one in answer.brokers] == [broker.port]
    assert wire.metadata("a").topics[0].error_code == 0


def test_metadata_that_fails_creates_no_topic(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Metadata", error="LEADER_NOT_AVAILABLE")
    assert wire.metadata("new", create=True).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert "new" not in broker.topics()


def test_metadata_about_no_topic_does_not_use_up_a_fault(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.fail("Metadata", error="LEADER_NOT_AVAILABLE")
    wire.ask(MetadataRequest(topics=[]), 12)
    assert fault.hits == 0


def test_a_client_is_told_to_bootstrap_again(broker: Broker, wire: Wire) -> None:
    """KIP-1102: the one error that Metadata tells of the cluster."""
    broker.faults.fail("Metadata", error="REBOOTSTRAP_REQUIRED")
    assert wire.metadata("a", version=13).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_a_fetch_fails_for_its_topic_and_reads_the_others(broker: Broker, wire: Wire) -> None:
    broker.produce("a", "x")
    broker.produce("b", "y")
    broker.faults.fail("Fetch", error=NOT_LEADER, topic="a")
    request = fetch_request("a", {0: 0}, max_wait_ms=int(LONG_S * 1000), min_bytes=1 << 20)
    request.topics += fetch_request("b", {0: 0}).topics
    told = {topic.topic: topic.partitions[0] for topic in wire.fetch(request).responses}
    assert (told["a"].error_code, told["b"].error_code) == (NOT_LEADER, 0)
    assert [record.value for record in records_in(told["b"].records)] == [b"y"]


def test_a_fetch_session_is_asked_to_name_its_partitions_before_one_fails(broker: Broker, wire: Wire) -> None:
    """KIP-227: an incremental request does not say what it is about."""
    session = wire.fetch(fetch_request("a", {0: 0}, session=(0, 0))).session_id
    assert session
    fault = broker.faults.fail("Fetch", error=NOT_LEADER, topic="a")
    again = wire.fetch(fetch_request("a", {}, session=(session, 1)))
    assert (again.error_code, fault.hits) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    full = wire.fetch(fetch_request("a", {0: 0}, session=(0, 0)))
    assert (full.responses[0].partitions[0].error_code, fault.hits) == (NOT_LEADER, 1)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_fails_in_every_version_over_the_wire(broker: Broker, wire: Wire, api: Api) -> None:
    lowest, highest = api.versions
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.faults.fail(api.name, error=code, times=None)
    for version in range(lowest, highest + 1):
        request = sample_request(api.key, version)
        if isinstance(request, ProduceRequest):
            request.acks = 1
        elif isinstance(request, FetchRequest):
            request.session_id, request.session_epoch = 0, -1
        assert code in codes_in(wire.ask(request, version)), version


# ---- delays


def test_a_delayed_request_takes_effect_later(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.delay("Produce", seconds=DELAY_S)
    began = time.monotonic()
    wire.send(produce_request("a", batch_of(b"x")), 9)
    fault.wait()
    assert values(broker) == []
    wire.receive()
    assert time.monotonic() - began >= DELAY_S
    assert values(broker) == [b"x"]


def test_a_delayed_answer_comes_after_the_effect(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.delay("Produce", seconds=DELAY_S, when="after")
    began = time.monotonic()
    wire.send(produce_request("a", batch_of(b"x")), 9)
    fault.wait()
    # The effect comes in the same turn of the broker's loop as the hit; this waits for that turn to end.
    broker.topics()
    assert values(broker) == [b"x"]
    wire.receive()
    assert time.monotonic() - began >= DELAY_S


def test_requests_behind_a_delayed_one_keep_their_order(broker: Broker, wire: Wire) -> None:
    broker.faults.delay("Produce", seconds=DELAY_S)
    sent = [wire.send(produce_request("a", batch_of(b"%d" % i)), 9) for i in range(3)]
    assert [wire.receive()[0] for _ in range(3)] == sent
    assert values(broker) == [b"0", b"1", b"2"]


def test_a_delayed_long_poll_is_still_woken(broker: Broker, wire: Wire) -> None:
    broker.faults.delay("Fetch", seconds=0.0)
    wire.send(fetch_request("a", {0: 0}, max_wait_ms=int(LONG_S * 1000)), 12)
    broker.requests.wait_for("Fetch")
    broker.produce("a", "x")
    response = wire.receive()[1]
    assert values_of(response) == {0: [b"x"]}  # type: ignore[arg-type]


# ---- no answer


def test_a_dropped_request_has_neither_answer_nor_effect(broker: Broker) -> None:
    broker.create_topic("a")
    fault = broker.faults.drop("Produce")
    with Wire(broker.bootstrap_servers, timeout_s=DELAY_S) as wire:
        wire.send(produce_request("a", batch_of(b"lost")), 9)
        fault.wait()
        with pytest.raises(TimeoutError):
            wire.receive()
    with Wire(broker.bootstrap_servers) as wire:
        assert wire.produce("a", batch_of(b"x")).base_offset == 0


def test_a_dropped_answer_leaves_the_effect(broker: Broker) -> None:
    broker.create_topic("a")
    broker.faults.drop("Produce", when="after")
    with Wire(broker.bootstrap_servers, timeout_s=DELAY_S) as wire:
        wire.send(produce_request("a", batch_of(b"x")), 9)
        with pytest.raises(TimeoutError):
            wire.receive()
    assert values(broker) == [b"x"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_is_closed_before_or_after_the_effect(broker: Broker, wire: Wire, when: str) -> None:
    broker.faults.close("Produce", when=when)  # type: ignore[arg-type]
    wire.send(produce_request("a", batch_of(b"x")), 9)
    assert wire.is_closed_by_the_broker()
    assert values(broker) == ([] if when == "before" else [b"x"])


def test_a_connection_is_closed_after_an_effect_that_takes_its_time(broker: Broker, wire: Wire) -> None:
    broker.faults.close("CreateTopics", when="after")
    wire.send(CreateTopicsRequest(timeout_ms=1000, topics=[_new("c")]), 7)
    assert wire.is_closed_by_the_broker()
    assert "c" in broker.topics()


def test_a_creation_that_fails_after_its_effect_is_there(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("CreateTopics", error="REQUEST_TIMED_OUT", when="after")
    response = wire.ask(CreateTopicsRequest(timeout_ms=1000, topics=[_new("c")]), 7)
    assert isinstance(response, CreateTopicsResponse)
    assert [(one.name, one.error_code) for one in response.topics] == [("c", ErrorCode.REQUEST_TIMED_OUT)]
    assert "c" in broker.topics()


def _new(name: str) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)


# ---- the end


@pytest.mark.parametrize("fault", ["drop before", "drop after", "delay before", "delay after", "long poll"])
def test_no_fault_holds_up_the_end_of_the_broker(fault: str) -> None:
    with Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        broker.create_topic("a")
        kind, _, when = fault.partition(" ")
        if kind == "drop":
            met = broker.faults.drop("Produce", when=when)  # type: ignore[arg-type]
        elif kind == "delay":
            met = broker.faults.delay("Produce", seconds=LONG_S, when=when)  # type: ignore[arg-type]
        else:
            met = broker.faults.delay("Fetch", seconds=LONG_S, when="after")
        request: ProduceRequest | FetchRequest = (
            fetch_request("a", {0: 0}, max_wait_ms=int(LONG_S * 1000))
            if kind == "long"
            else produce_request("a", batch_of(b"x"))
        )
        wire.send(request, 9 if kind != "long" else 12)
        met.wait()
        began = time.monotonic()
        broker.stop()
        # Well below what the broker waits for answers that are being written.
        assert time.monotonic() - began < 2.0


# ---- the script


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda faults: faults.drop("Produse"), "did you mean Produce"),
        (lambda faults: faults.fail("Produce", error="NOT_A_LEADER_OR_FOLLOWER"), "NOT_LEADER_OR_FOLLOWER"),
        (lambda faults: faults.fail("Produce", error="NONE"), "no error"),
        (lambda faults: faults.drop("Produce", times=0), "at least 1"),
        (lambda faults: faults.delay("Produce", seconds=-1), "negative"),
        (lambda faults: faults.close("Produce", when="later"), "before"),
    ],
)
def test_a_script_that_cannot_be_is_refused(wrong: object, says: str) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=says):
        wrong(Faults())


def test_clearing_forgets_all_faults(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Produce", error=NOT_LEADER, times=None)
    broker.faults.drop("Metadata")
    broker.faults.clear()
    assert wire.produce("a", batch_of(b"x")).error_code == 0
    assert len(wire.metadata("a").topics) == 1


def test_waiting_for_a_fault_that_nothing_meets_times_out() -> None:
    with pytest.raises(TimeoutError, match="0 of 1"):
        Faults().drop("Produce").wait(timeout_s=0.01)


def test_a_test_waits_for_the_request_that_a_fault_meets(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.fail("Produce", error=NOT_LEADER)
    sender = threading.Thread(target=lambda: wire.produce("a", batch_of(b"x")))
    sender.start()
    fault.wait()
    sender.join()
    assert fault.hits == 1
