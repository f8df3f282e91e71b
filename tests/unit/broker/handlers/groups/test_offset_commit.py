"""OffsetCommit, OffsetFetch and OffsetDelete over the wire, in every version (Z7)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.group_requests import (
    GROUP,
    TOPIC,
    UNKNOWN_ID,
    commit,
    commit_request,
    fetch_request,
    fetched,
    versions,
)


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_and_partitions_that_are_not_there_refused_alone(
    ready: SingleBroker, version: int
) -> None:
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    other: str | bytes = UNKNOWN_ID if version >= 10 else "nowhere"
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit(ready, version, commit_request({topic: {0: 5, 7: 1}, other: {0: 3}}))
    assert codes == {
        (topic, 0): ErrorCode.NONE,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): unknown,
    }
    answer = ready.ask(fetch_request(9, None), OffsetFetchResponse, 9)
    assert fetched(answer, 9) == {GROUP: {(TOPIC, 0): (5, 0)}}


@pytest.mark.parametrize("version", versions(9))
def test_committed_offsets_are_fetched(ready: SingleBroker, version: int) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    asked = fetch_request(version, {topic: [1, 4]})
    answer = ready.ask(asked, OffsetFetchResponse, version)
    assert fetched(answer, version) == {GROUP: {(topic, 1): (6, 0), (topic, 4): (-1, 0)}}


@pytest.mark.parametrize("version", [version for version in versions(9) if version >= 2])
def test_all_offsets_of_a_group_are_fetched_where_no_topic_is_named(
    ready: SingleBroker, version: int
) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    answer = ready.ask(fetch_request(version, None), OffsetFetchResponse, version)
    assert fetched(answer, version) == {GROUP: {(topic, 0): (5, 0), (topic, 1): (6, 0)}}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_are_asked_at_once(ready: SingleBroker, version: int) -> None:
    groups = ("a", "b", "nobody")
    commit(ready, 9, commit_request({TOPIC: {0: 1}}, group="a"))
    commit(ready, 9, commit_request({TOPIC: {1: 2}}, group="b"))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    answer = ready.ask(fetch_request(version, None, groups), OffsetFetchResponse, version)
    assert fetched(answer, version) == {"a": {(topic, 0): (1, 0)}, "b": {(topic, 1): (2, 0)}, "nobody": {}}
    assert [group.group_id for group in answer.groups] == list(groups)


def test_a_topic_id_that_is_not_known_is_refused_beside_one_that_is(ready: SingleBroker) -> None:
    known = ready.topic_id(TOPIC)
    commit(ready, 10, commit_request({known: {0: 5}}))
    answer = ready.ask(fetch_request(10, {UNKNOWN_ID: [0], known: [0]}), OffsetFetchResponse, 10)
    assert fetched(answer, 10) == {
        GROUP: {(known, 0): (5, 0), (UNKNOWN_ID, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID)}
    }


def test_offsets_are_deleted_one_by_one(ready: SingleBroker) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in (TOPIC, "nowhere")
        ],
    )
    answer = ready.ask(request, OffsetDeleteResponse, 0)
    assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [
        [ErrorCode.NONE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    left = ready.ask(fetch_request(9, None), OffsetFetchResponse, 9)
    assert fetched(left, 9) == {GROUP: {(TOPIC, 1): (6, 0)}}
