"""CreatePartitions (KIP-195)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from support.broker.single_broker import NODE_ID, SingleBroker

Topic = CreatePartitionsRequest.CreatePartitionsTopic
Assignment = CreatePartitionsRequest.CreatePartitionsAssignment


def grow(
    broker: SingleBroker, *topics: Topic, version: int = 3, validate_only: bool = False
) -> dict[str, ErrorCode]:
    message = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    results = broker.ask(message, CreatePartitionsResponse, version).results
    assert all((result.error_message is None) == (result.error_code == 0) for result in results)
    return {result.name: ErrorCode(result.error_code) for result in results}


def topic(name: str, count: int, placed: list[list[int]] | None = None) -> Topic:
    assignments = None if placed is None else [Assignment(broker_ids=brokers) for brokers in placed]
    return Topic(name=name, count=count, assignments=assignments)


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_to_the_count(broker: SingleBroker, version: int) -> None:
    broker.create("t", 2)
    assert grow(broker, topic("t", 5), version=version) == {"t": ErrorCode.NONE}
    assert len(broker.services.metadata.image.topics["t"].partitions) == 5
    assert broker.partition("t", 4).log.end_offset == 0


def test_validate_only_checks_and_adds_nothing(broker: SingleBroker) -> None:
    broker.create("t")
    assert grow(broker, topic("t", 5), validate_only=True) == {"t": ErrorCode.NONE}
    assert grow(broker, topic("t", 1), validate_only=True) == {"t": ErrorCode.INVALID_PARTITIONS}
    assert len(broker.services.metadata.image.topics["t"].partitions) == 1


def test_new_partitions_may_be_placed_by_hand(broker: SingleBroker) -> None:
    broker.create("t")
    assert grow(broker, topic("t", 3, [[NODE_ID], [NODE_ID]])) == {"t": ErrorCode.NONE}
    assert broker.services.metadata.image.topics["t"].partitions[2].replicas == [NODE_ID]


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (topic("none", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("t", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 4, [[NODE_ID]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[99]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(broker: SingleBroker, refused: Topic, code: ErrorCode) -> None:
    broker.create("t", 2)
    assert grow(broker, refused) == {refused.name: code}


def test_a_topic_named_twice_is_refused_and_the_others_grow(broker: SingleBroker) -> None:
    broker.create("a")
    broker.create("b")
    answers = grow(broker, topic("a", 2), topic("b", 2), topic("a", 3))
    assert answers == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}
    assert len(broker.services.metadata.image.topics["a"].partitions) == 1


def test_where_coordinators_keep_what_they_know_does_not_grow(broker: SingleBroker) -> None:
    broker.loop.run_until_complete(broker.groups.make_topic())
    assert grow(broker, topic("__consumer_offsets", 60)) == {
        "__consumer_offsets": ErrorCode.INVALID_PARTITIONS
    }
    assert len(broker.services.metadata.image.topics["__consumer_offsets"].partitions) == 50
