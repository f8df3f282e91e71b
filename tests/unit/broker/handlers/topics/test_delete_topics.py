"""DeleteTopics: by name and by id (KIP-516), and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from flintmq.records.uuids import ZERO_UUID
from support.broker.single_broker import SingleBroker

State = DeleteTopicsRequest.DeleteTopicState
UNKNOWN_ID = bytes(range(16))


def delete(broker: SingleBroker, *states: State) -> dict[tuple[str | None, bytes], ErrorCode]:
    message = DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
    responses = broker.ask(message, DeleteTopicsResponse, 6).responses
    assert all((one.error_message is None) == (one.error_code == 0) for one in responses)
    return {(one.name, one.topic_id): ErrorCode(one.error_code) for one in responses}


def test_topics_are_deleted_by_name_or_id(broker: SingleBroker) -> None:
    broker.create("a")
    broker.create("b", 2)
    a, b = broker.topic_id("a"), broker.topic_id("b")
    answers = delete(broker, State(name="a"), State(name=None, topic_id=b))
    assert answers == {("a", a): ErrorCode.NONE, ("b", b): ErrorCode.NONE}
    assert not broker.services.metadata.image.topics
    assert broker.services.partitions.get("a", 0) is None
    view = broker.loop.run_until_complete(broker.services.metadata.store.get("/p/"))
    assert not view.items


@pytest.mark.parametrize("version", range(1, 6))
def test_older_versions_name_topics(broker: SingleBroker, version: int) -> None:
    broker.create("a")
    message = DeleteTopicsRequest(topic_names=["a", "none"], timeout_ms=1000)
    responses = broker.ask(message, DeleteTopicsResponse, version).responses
    assert {one.name: one.error_code for one in responses} == {
        "a": 0,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_unknown_topic_is_told_by_how_it_was_named(broker: SingleBroker) -> None:
    assert delete(broker, State(name="none"), State(name=None, topic_id=UNKNOWN_ID)) == {
        ("none", ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, UNKNOWN_ID): ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_what_is_named_twice_or_not_at_all_is_refused_and_kept(broker: SingleBroker) -> None:
    for name in ("a", "b", "c", "d"):
        broker.create(name)
    ids = {name: broker.topic_id(name) for name in "abcd"}
    answers = delete(
        broker,
        State(name="a"),
        State(name="a"),
        State(name=None, topic_id=ids["b"]),
        State(name=None, topic_id=ids["b"]),
        State(name="c"),
        State(name=None, topic_id=ids["c"]),
        State(name="d", topic_id=ids["d"]),
        State(name=None),
    )
    assert answers == dict.fromkeys(
        [("a", ZERO_UUID), (None, ids["b"]), ("c", ids["c"]), ("d", ids["d"]), (None, ZERO_UUID)],
        ErrorCode.INVALID_REQUEST,
    )
    assert set(broker.services.metadata.image.topics) == set("abcd")


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_deletion_may_be_disabled(start_broker: Any, version: int, code: ErrorCode) -> None:
    broker = start_broker({"delete.topic.enable": "false"})
    broker.create("a")
    message = DeleteTopicsRequest(topic_names=["a"], topics=[State(name="a")] if version >= 6 else [])
    if version >= 6:
        message.topic_names = []
    [response] = broker.ask(message, DeleteTopicsResponse, version).responses
    assert (response.name, response.error_code) == ("a", code)
    assert "a" in broker.services.metadata.image.topics


def test_a_deleted_topic_can_be_made_again_with_another_id(broker: SingleBroker) -> None:
    broker.create("a")
    broker.append("a", 1_700_000_000_000)
    first = broker.topic_id("a")
    delete(broker, State(name="a"))
    broker.create("a")
    assert broker.topic_id("a") != first
    assert broker.partition("a").log.end_offset == 0
