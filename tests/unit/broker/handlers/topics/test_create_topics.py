"""CreateTopics: defaults, placement by hand, settings, and what is refused (KIP-464, KIP-525)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from support.broker.single_broker import NODE_ID, SingleBroker

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig


def topic(name: str = "t", count: int = 1, factor: int = 1, **more: Any) -> Topic:
    return Topic(name=name, num_partitions=count, replication_factor=factor, **more)


def create(
    broker: SingleBroker, *topics: Topic, version: int = 7, validate_only: bool = False
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    message = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return broker.ask(message, CreateTopicsResponse, version).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_in_every_version(broker: SingleBroker, version: int) -> None:
    [result] = create(broker, topic(count=3), version=version)
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert len(broker.services.metadata.image.topics["t"].partitions) == 3
    assert [broker.services.partitions.get("t", index) is not None for index in range(4)] == [True] * 3 + [
        False
    ]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    if version >= 7:
        assert result.topic_id == broker.topic_id("t")


def test_minus_one_takes_the_defaults_of_the_broker(start_broker: Any) -> None:
    broker = start_broker({"num.partitions": "4"})
    [result] = create(broker, topic(count=-1, factor=-1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)


def test_the_answer_tells_the_settings_in_force_and_their_source(broker: SingleBroker) -> None:
    configs = [Config(name="retention.ms", value="1000")]
    [result] = create(broker, topic(configs=configs))
    assert result.configs is not None
    told = {config.name: (config.value, config.config_source) for config in result.configs}
    assert list(told) == sorted(told)
    assert told["retention.ms"] == ("1000", 1)
    assert told["segment.bytes"] == (str(1 << 30), 5)
    assert broker.partition("t").log.config.retention_ms == 1000


def test_validate_only_makes_nothing(broker: SingleBroker) -> None:
    [result] = create(broker, topic(count=2), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, bytes(16))
    [refused] = create(broker, topic(count=0), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert not broker.services.metadata.image.topics


def test_topics_of_one_request_succeed_and_fail_on_their_own(broker: SingleBroker) -> None:
    broker.create("old")
    results = create(broker, topic("new"), topic("old"), topic("twice"), topic("no/name"), topic("twice"))
    assert [(result.name, ErrorCode(result.error_code)) for result in results] == [
        ("new", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert set(broker.services.metadata.image.topics) == {"old", "new"}
    assert all(result.error_message for result in results[1:])


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic(count=0), ErrorCode.INVALID_PARTITIONS),
        (topic(count=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(factor=0, count=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs=[Config(name="no.such.setting", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic(count=0, configs=[Config(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[Config(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (topic(count=10_001), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_code(
    broker: SingleBroker, refused: Topic, code: ErrorCode
) -> None:
    broker.create("a.b")
    [result] = create(broker, refused)
    assert (ErrorCode(result.error_code), result.num_partitions) == (code, -1)
    assert result.error_message
    assert set(broker.services.metadata.image.topics) == {"a.b"}


def by_hand(*placed: tuple[int, list[int]], count: int = -1, factor: int = -1) -> Topic:
    assignments = [Assignment(partition_index=index, broker_ids=brokers) for index, brokers in placed]
    return topic(count=count, factor=factor, assignments=assignments)


def test_replicas_may_be_placed_by_hand(broker: SingleBroker) -> None:
    [result] = create(broker, by_hand((1, [NODE_ID]), (0, [NODE_ID])))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (by_hand((0, [NODE_ID]), count=1), ErrorCode.INVALID_REQUEST),
        (by_hand((0, [NODE_ID]), factor=1), ErrorCode.INVALID_REQUEST),
        (by_hand((0, [99])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand((0, [NODE_ID, NODE_ID])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand((0, [NODE_ID]), (2, [NODE_ID])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand((0, [NODE_ID]), (0, [NODE_ID])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_impossible_placement_is_refused(broker: SingleBroker, refused: Topic, code: ErrorCode) -> None:
    [result] = create(broker, refused)
    assert ErrorCode(result.error_code) is code


def test_two_who_create_one_topic_at_once_get_one_topic(broker: SingleBroker) -> None:
    messages = [CreateTopicsRequest(topics=[topic(count=2)], timeout_ms=1000) for _ in range(2)]
    results = broker.ask_together(messages, CreateTopicsResponse, 7)
    codes = sorted(result.topics[0].error_code for result in results)
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    view = broker.loop.run_until_complete(broker.services.metadata.store.get("/p/"))
    assert len(view.items) == 2
