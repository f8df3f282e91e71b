from __future__ import annotations

from typing import Any

import pytest

from flintmq.client.addresses import Address
from flintmq.client.admin.topics import LATEST, create_topic, delete_topic, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ConnectionLost, NoBrokerReached
from flintmq.client.retries import ATTEMPTS
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from support.broker.scripted_broker import BOOTSTRAP, ScriptedBroker, TestClock, metadata, scripted_client


def listed(partition: int, offset: int, error: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    found = ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=partition, offset=offset, error_code=error
    )
    topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[found])
    return ListOffsetsResponse(topics=[topic])


def test_versions_are_settled_before_anything_is_asked() -> None:
    broker = ScriptedBroker(
        {MetadataRequest: metadata()}, versions={ApiVersionsRequest: (0, 2), MetadataRequest: (0, 5)}
    )
    scripted_client(broker).topic("t")
    assert broker.versions_used[MetadataRequest] == 5


def test_bootstrap_goes_on_to_the_next_address_and_names_all_when_none_answers() -> None:
    broker = ScriptedBroker({MetadataRequest: metadata()})
    first, second = Address("one", 1), Address("two", 2)
    broker.refused = {first}
    client = ClusterClient([first, second], connect=broker.connect)
    assert client.any().address == second
    broker.refused = {first, second}
    with pytest.raises(NoBrokerReached, match=r"one:1 \(connection refused\), two:2 .*is it running\?"):
        ClusterClient([first, second], connect=broker.connect).any()


def test_a_cluster_that_never_answered_is_not_asked_again() -> None:
    broker, clock = ScriptedBroker({MetadataRequest: metadata()}), TestClock()
    broker.refused = {BOOTSTRAP}
    with pytest.raises(NoBrokerReached):
        scripted_client(broker, clock).topic("t")
    assert clock.slept == []


def test_a_broken_connection_is_made_anew_and_the_question_repeated() -> None:
    answers: list[Any] = [ConnectionResetError(104, "reset"), None]
    working = metadata()

    def flaky(request: MetadataRequest) -> MetadataResponse | OSError:
        return answers.pop(0) or working(request)

    broker, clock = ScriptedBroker({MetadataRequest: flaky}), TestClock()
    assert scripted_client(broker, clock).topic("t").name == "t"
    assert broker.connected == [BOOTSTRAP, BOOTSTRAP]
    assert clock.slept == [0.1]


def test_attempts_are_bounded_and_wait_longer_each_time() -> None:
    broker = ScriptedBroker({MetadataRequest: lambda _: ConnectionResetError(104, "reset")})
    clock = TestClock()
    with pytest.raises(ConnectionLost, match="reset"):
        scripted_client(broker, clock).topic("t")
    assert len(broker.requests) == ATTEMPTS
    assert clock.slept == sorted(clock.slept)
    assert max(clock.slept) == 1.0


def test_a_topic_that_is_not_there_is_told_at_once() -> None:
    broker, clock = ScriptedBroker({MetadataRequest: metadata()}), TestClock()
    with pytest.raises(RequestError, match="there is no topic missing"):
        scripted_client(broker, clock).topic("missing")
    assert clock.slept == []


def test_leaders_are_asked_each_for_its_own_partitions() -> None:
    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (partition,) = request.topics[0].partitions
        return listed(partition.partition_index, 100 + partition.partition_index)

    broker = ScriptedBroker(
        {MetadataRequest: metadata(2, leaders={0: 0, 1: 1}, brokers=2), ListOffsetsRequest: answer}
    )
    client = scripted_client(broker)
    client.topic("t")
    assert offsets(client, [("t", 0), ("t", 1)], LATEST) == {("t", 0): 100, ("t", 1): 101}
    assert set(broker.connected) == {BOOTSTRAP, Address("n0", 9092), Address("n1", 9092)}


def test_a_leader_that_has_moved_is_looked_up_again() -> None:
    answers = [listed(0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), listed(0, 5)]
    broker = ScriptedBroker({MetadataRequest: metadata(), ListOffsetsRequest: lambda _: answers.pop(0)})
    client = scripted_client(broker)
    client.topic("t")
    assert offsets(client, [("t", 0)], LATEST) == {("t", 0): 5}
    assert [type(request).__name__ for request in broker.requests] == [
        "MetadataRequest",
        "ListOffsetsRequest",
        "MetadataRequest",
        "ListOffsetsRequest",
    ]


def test_an_advertised_address_where_nobody_answers_is_explained() -> None:
    broker = ScriptedBroker({MetadataRequest: metadata()})
    broker.refused = {Address("n0", 9092)}
    client = scripted_client(broker)
    client.topic("t")
    with pytest.raises(NoBrokerReached, match=r"advertised\.listeners"):
        client.broker(0)


def test_a_change_whose_answer_was_lost_is_not_sent_again() -> None:
    broker = ScriptedBroker(
        {MetadataRequest: metadata(), CreateTopicsRequest: lambda _: ConnectionResetError(104, "reset")}
    )
    with pytest.raises(ConnectionLost):
        create_topic(scripted_client(broker), "new")
    assert sum(isinstance(request, CreateTopicsRequest) for request in broker.requests) == 1


def test_a_change_refused_by_who_is_no_longer_controller_is_sent_again() -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(_: CreateTopicsRequest) -> CreateTopicsResponse:
        result = CreateTopicsResponse.CreatableTopicResult(
            name="new", error_code=codes.pop(0), num_partitions=4
        )
        return CreateTopicsResponse(topics=[result])

    broker = ScriptedBroker({MetadataRequest: metadata(), CreateTopicsRequest: answer})
    assert create_topic(scripted_client(broker), "new").partitions == 4


def test_deleting_what_is_not_there_fails_at_once_with_the_broker_s_words() -> None:
    result = DeleteTopicsResponse.DeletableTopicResult(
        name="x", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message="gone"
    )
    broker = ScriptedBroker(
        {MetadataRequest: metadata(), DeleteTopicsRequest: lambda _: DeleteTopicsResponse(responses=[result])}
    )
    clock = TestClock()
    with pytest.raises(RequestError, match="gone"):
        delete_topic(scripted_client(broker, clock), "x")
    assert clock.slept == []
