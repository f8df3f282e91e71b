"""Scripted errors are well-formed for every API and version, with the code where a client looks (N3)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.apis import APIS, Api
from flintmq.errors import ErrorCode
from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    AlterReplicaLogDirsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from flintmq.testing.error_responses import error_response
from unit.testing.sample_requests import TOPIC_ID, codes_in, sample_request

CODE = ErrorCode.NOT_CONTROLLER
TEXT = "because the test says so"


def answer(request: Message, version: int, *, per_topic: bool = False) -> Any:
    """What a client reads."""
    built = error_response(request, version, CODE, TEXT, per_topic=per_topic)
    assert built is not None
    decoded, _ = decode(type(built), encode(built, version), version)
    return decoded


@pytest.mark.parametrize("per_topic", [False, True])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_and_version_has_an_error_answer(api: Api, per_topic: bool) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
        request = sample_request(api.key, version)
        assert CODE in codes_in(answer(request, version, per_topic=per_topic)), version


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_fails_for_each_partition(version: int) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="a" if version < 13 else "",
                topic_id=TOPIC_ID if version >= 13 else bytes(16),
                partition_data=[ProduceRequest.PartitionProduceData(index=index) for index in (3, 5)],
            )
        ],
    )
    (topic,) = answer(request, version).responses
    assert (topic.name, topic.topic_id) == (("a", bytes(16)) if version < 13 else ("", TOPIC_ID))
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (3, CODE, -1),
        (5, CODE, -1),
    ]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_fails_for_each_partition_and_keeps_its_session_out_of_it(version: int) -> None:
    topic = FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(partition=4, fetch_offset=9)])
    if version < 13:
        topic.topic = "a"
    else:
        topic.topic_id = TOPIC_ID
    response = answer(FetchRequest(topics=[topic]), version)
    assert (response.error_code, response.session_id) == (0, 0)
    (told,) = response.responses
    (partition,) = told.partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (4, CODE, -1)
    assert not partition.records


def test_a_session_error_of_fetch_stands_at_the_top() -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="a")])
    built = error_response(request, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH, TEXT)
    assert isinstance(built, messages.FetchResponse)
    assert (built.error_code, built.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


def test_what_was_asked_is_not_told_as_an_answer() -> None:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="a",
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=1234)],
            )
        ]
    )
    (partition,) = answer(request, 7).topics[0].partitions
    assert (partition.partition_index, partition.timestamp, partition.offset) == (1, -1, -1)


def test_topics_are_told_with_the_reason() -> None:
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3) for name in ("a", "b")]
    )
    told = answer(request, 7).topics
    assert [(one.name, one.error_code, one.error_message, one.num_partitions) for one in told] == [
        ("a", CODE, TEXT, -1),
        ("b", CODE, TEXT, -1),
    ]


@pytest.mark.parametrize("version", range(1, 7))
def test_deleted_topics_are_told_by_name(version: int) -> None:
    request = (
        DeleteTopicsRequest(topic_names=["a", "b"])
        if version < 6
        else DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in "ab"])
    )
    assert [(one.name, one.error_code) for one in answer(request, version).responses] == [
        ("a", CODE),
        ("b", CODE),
    ]


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_not_found_for_each_key(version: int) -> None:
    if version < 4:
        response = answer(FindCoordinatorRequest(key="g"), version)
        assert (response.error_code, response.node_id, response.port) == (CODE, -1, -1)
    else:
        told = answer(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version).coordinators
        assert [(one.key, one.error_code, one.node_id) for one in told] == [("g", CODE, -1), ("h", CODE, -1)]


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_of_a_group_fail_at_the_highest_level_there_is(version: int) -> None:
    """Version 1 has only partitions, from 2 the answer has a code, from 8 each group."""
    if version < 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="a", partition_indexes=[6])
        response = answer(OffsetFetchRequest(group_id="g", topics=[topic]), version)
        if version >= 2:
            assert (response.error_code, response.topics) == (CODE, [])
            return
        (partition,) = response.topics[0].partitions
        assert (partition.partition_index, partition.error_code, partition.committed_offset) == (6, CODE, -1)
        return
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    (told,) = answer(OffsetFetchRequest(groups=[group]), version).groups
    assert (told.group_id, told.error_code, told.topics) == ("g", CODE, [])


def test_resources_are_told_by_kind_and_name() -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=2, resource_name="a", configuration_keys=["x"]
            )
        ]
    )
    (told,) = answer(request, 4).results
    assert (told.resource_type, told.resource_name, told.error_code, told.configs) == (2, "a", CODE, [])


def test_partitions_named_below_folders_are_told_by_topic() -> None:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path="/d",
                topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="a", partitions=[0, 1])],
            )
        ]
    )
    (topic,) = answer(request, 2).results
    assert topic.topic_name == "a"
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, CODE), (1, CODE)]


def test_a_request_that_names_nothing_has_no_place_for_an_error() -> None:
    assert error_response(MetadataRequest(topics=[]), 12, CODE, TEXT) is None
    assert error_response(ProduceRequest(acks=1, timeout_ms=1), 9, CODE, TEXT) is None
