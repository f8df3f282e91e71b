"""DescribeTopicPartitions: pages of partitions (KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from support.broker.single_broker import NODE_ID, SingleBroker

Wanted = DescribeTopicPartitionsRequest.TopicRequest
Cursor = DescribeTopicPartitionsRequest.Cursor


def page(
    broker: SingleBroker, names: list[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    message = DescribeTopicPartitionsRequest(
        topics=[Wanted(name=name) for name in names], response_partition_limit=limit
    )
    if cursor is not None:
        message.cursor = Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return broker.ask(message, DescribeTopicPartitionsResponse, 0)


def places(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics]


def next_place(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def filled(broker: SingleBroker) -> SingleBroker:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        broker.create(name, count)
    return broker


def test_a_topic_with_its_partitions(filled: SingleBroker) -> None:
    answer = page(filled, ["a"])
    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "a", filled.topic_id("a"))
    assert topic.topic_authorized_operations == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
    assert not topic.is_internal
    told = topic.partitions[1]
    assert (told.partition_index, told.leader_id, told.leader_epoch) == (1, NODE_ID, 0)
    assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ([NODE_ID], [NODE_ID], [])
    assert (told.eligible_leader_replicas, told.last_known_elr) == ([], [])
    assert next_place(answer) is None


def test_no_topics_means_all_in_the_order_of_their_names(filled: SingleBroker) -> None:
    assert places(page(filled, [])) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]


def test_the_cursor_leads_through_all_pages(filled: SingleBroker) -> None:
    first = page(filled, [], limit=4)
    assert places(first) == [("a", [0, 1]), ("b", [0, 1])]
    assert next_place(first) == ("b", 2)
    second = page(filled, [], limit=1, cursor=("b", 2))
    assert places(second) == [("b", [2])]
    assert next_place(second) == ("c", 0)
    assert places(page(filled, [], limit=1, cursor=("c", 0))) == [("c", [0])]


def test_the_limit_of_the_broker_is_the_stronger_one(start_broker: Any) -> None:
    broker = start_broker({"max.request.partition.size.limit": "2"})
    broker.create("t", 5)
    answer = page(broker, ["t"])
    assert places(answer) == [("t", [0, 1])]
    assert next_place(answer) == ("t", 2)


def test_a_limit_below_one_still_gives_one_partition(filled: SingleBroker) -> None:
    assert places(page(filled, ["a"], limit=0)) == [("a", [0])]


def test_unknown_and_impossible_topics_are_told(filled: SingleBroker) -> None:
    answer = page(filled, ["none", "no/name", "a", "a"])
    assert [(topic.name, ErrorCode(topic.error_code)) for topic in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("b", 0), ("zzz", 0), ("a", -1)])
def test_a_cursor_that_leads_nowhere_refuses_the_request(
    filled: SingleBroker, cursor: tuple[str, int]
) -> None:
    answer = page(filled, ["a", "c"], cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]


def test_a_cursor_beyond_the_last_partition_goes_on_with_the_next_topic(filled: SingleBroker) -> None:
    assert places(page(filled, [], cursor=("b", 7))) == [("b", []), ("c", [0])]
