"""Requests of group members to a broker without sockets, both ways as bytes."""

from __future__ import annotations

from typing import Any, TypeVar

from flintmq.broker.apis import APIS
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from support.broker.single_broker import SingleBroker

GROUP = "g"
TOPIC = "t"
UNKNOWN_ID = bytes(range(16))
OLD_JOIN = 3
"""The last version in which a member need not come back with an id (KIP-394)."""
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"

M = TypeVar("M", bound=Message)


def find(broker: SingleBroker, version: int = 3, **fields: Any) -> FindCoordinatorResponse:
    found = broker.ask(FindCoordinatorRequest(**{"key": GROUP, **fields}), FindCoordinatorResponse, version)
    broker.loop.run_until_complete(broker.groups.loaded())
    return found


def join_request(member_id: str = "", group: str = GROUP, metadata: bytes = SUBSCRIPTION) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(broker: SingleBroker, version: int = 9, **fields: Any) -> JoinGroupResponse:
    """As clients do: once more with the id they are given."""
    answer = broker.ask(join_request(**fields), JoinGroupResponse, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = broker.ask(join_request(answer.member_id, **fields), JoinGroupResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return answer


def sync_request(joined: JoinGroupResponse, version: int, assignment: bytes = b"part") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        ],
    )


def stable(broker: SingleBroker) -> JoinGroupResponse:
    """A group of one."""
    joined = join(broker)
    assert broker.ask(sync_request(joined, 5), SyncGroupResponse, 5).error_code == ErrorCode.NONE
    return joined


def commit_request(
    topics: dict[str | bytes, dict[int, int]],
    *,
    group: str = GROUP,
    member_id: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    named = []
    for topic, offsets in topics.items():
        one = OffsetCommitRequest.OffsetCommitRequestTopic(
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata="m"
                )
                for index, offset in offsets.items()
            ]
        )
        if isinstance(topic, bytes):
            one.topic_id = topic
        else:
            one.name = topic
        named.append(one)
    return OffsetCommitRequest(
        group_id=group, member_id=member_id, generation_id_or_member_epoch=generation, topics=named
    )


def commit(broker: SingleBroker, version: int, request: OffsetCommitRequest) -> dict[Any, int]:
    """Error codes by topic, as it was named, and partition."""
    answer = broker.ask(request, OffsetCommitResponse, version)
    return {
        (topic.topic_id if version >= 10 else topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }


def fetched(answer: OffsetFetchResponse, version: int) -> dict[str, dict[Any, tuple[int, int]]]:
    """By group, then by topic as it was named and partition: offset and error code."""
    if version < 8:
        return {
            GROUP: {
                (topic.name, one.partition_index): (one.committed_offset, one.error_code)
                for topic in answer.topics
                for one in topic.partitions
            }
        }
    return {
        group.group_id: {
            (topic.topic_id if version >= 10 else topic.name, one.partition_index): (
                one.committed_offset,
                one.error_code,
            )
            for topic in group.topics
            for one in topic.partitions
        }
        for group in answer.groups
    }


def fetch_request(
    version: int, topics: dict[str | bytes, list[int]] | None, groups: tuple[str, ...] = (GROUP,)
) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=groups[0],
            topics=None
            if topics is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=str(name), partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
    named = None
    if topics is not None:
        named = []
        for topic, indexes in topics.items():
            one = OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=indexes)
            if isinstance(topic, bytes):
                one.topic_id = topic
            else:
                one.name = topic
            named.append(one)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=named) for group in groups]
    )


def versions(key: int) -> range:
    lowest, highest = next(api.versions for api in APIS if api.key == key)
    return range(lowest, highest + 1)


def describe(broker: SingleBroker, version: int, *groups: str) -> list[DescribeGroupsResponse.DescribedGroup]:
    return broker.ask(DescribeGroupsRequest(groups=list(groups)), DescribeGroupsResponse, version).groups
