"""Consumer groups from outside: which there are, who is in them, how far they have read; over the wire.

Each function is one question or one change to the group's coordinator; RequestError carries what the broker says.
Being a member is another matter: see `membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from flintmq.client.assignors import PROTOCOL_TYPE, Assignment, decode_assignment, decode_subscription
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType, call_coordinator
from flintmq.client.errors import check
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from flintmq.records.topic_partition import TopicPartition

DEAD: Final = "Dead"
"""The state of a group that is not there, to brokers that say so by a state."""

# Later versions ask for several groups, or name topics by ids; for one group and by name every broker knows these.
_FETCH_OF_ONE: Final = 7
COMMIT_VERSION_MAX: Final = 9
_NO_GENERATION: Final = -1
_NO_OFFSET: Final = -1

M = TypeVar("M", bound=Message)


class ListedGroup(NamedTuple):
    id: str
    state: str
    """Empty where the broker is too old to tell."""
    protocol_type: str
    """`consumer`; empty for a group that only keeps offsets."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    """What it subscribed to, where it says so in a way that is understood."""
    assignment: Assignment

    def __str__(self) -> str:
        return f"{self.instance_id or self.id} ({self.host})"


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    id: str
    state: str
    protocol_type: str
    assignor: str
    """Empty unless the group is stable."""
    coordinator: int
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    offset: int
    metadata: str


def list_groups(client: ClusterClient) -> list[ListedGroup]:
    """All groups of all brokers, by name."""

    def ask() -> list[ListedGroup]:
        client.freshen()
        requests = dict.fromkeys(client.metadata.brokers, ListGroupsRequest())
        responses = client.exchange(requests, ListGroupsResponse, timeout_s=client.request_timeout_s)
        found: dict[str, ListedGroup] = {}
        for response in responses.values():
            if isinstance(response, FlintError):
                raise response
            check(response.error_code)
            for one in response.groups:
                found[one.group_id] = ListedGroup(one.group_id, one.group_state, one.protocol_type)
        return [found[name] for name in sorted(found)]

    return client.attempt(ask)


def describe_group(client: ClusterClient, group_id: str) -> DescribedGroup:
    def judge(response: DescribeGroupsResponse) -> None:
        if len(response.groups) != 1:
            raise ProtocolError(f"the broker's answer is not about group {group_id} alone")
        one = response.groups[0]
        if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not one.error_code and one.group_state == DEAD):
            raise no_such_group(group_id)
        check(one.error_code, one.error_message, what=f"group {group_id}")

    node, response = _call(
        client, group_id, DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse, judge
    )
    found = response.groups[0]
    is_consumer = found.protocol_type == PROTOCOL_TYPE
    return DescribedGroup(
        found.group_id,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        node,
        tuple(_member(one, is_consumer=is_consumer) for one in found.members),
    )


def _member(one: DescribeGroupsResponse.DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    topics = decode_subscription(one.member_metadata) if is_consumer else None
    assignment = decode_assignment(one.member_assignment) if is_consumer else None
    return GroupMember(
        one.member_id,
        one.group_instance_id,
        one.client_id,
        one.client_host.removeprefix("/"),
        tuple(topics or ()),
        assignment or {},
    )


def committed_offsets(
    client: ClusterClient, group_id: str, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, GroupOffset]:
    """Of these partitions those that have one, or all that a group has. No offsets of a group that is not there.

    What an open transaction may replace is waited for (KIP-447): it would be wrong a moment later.
    """
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)

    def judge(response: OffsetFetchResponse) -> None:
        check(response.error_code, what=f"group {group_id}")
        for topic in response.topics:
            for one in topic.partitions:
                check(one.error_code, what=f"group {group_id}, {topic.name}-{one.partition_index}")

    _, response = _call(client, group_id, request, OffsetFetchResponse, judge, highest=_FETCH_OF_ONE)
    return {
        (topic.name, one.partition_index): GroupOffset(one.committed_offset, one.metadata or "")
        for topic in response.topics
        for one in topic.partitions
        if one.committed_offset != _NO_OFFSET
    }


def set_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, int], *, metadata: str = ""
) -> None:
    """Commit as one who is no member, which a group allows only while it has none.

    `metadata` is kept with each offset; the broker bounds its length.
    """

    def judge(response: OffsetCommitResponse) -> None:
        check_commit(response, group_id)

    request = commit_request(group_id, offsets, metadata=metadata)
    _call(client, group_id, request, OffsetCommitResponse, judge, highest=COMMIT_VERSION_MAX)


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    generation: int = _NO_GENERATION,
    metadata: str = "",
) -> OffsetCommitRequest:
    """To be sent in a version that names topics, see `COMMIT_VERSION_MAX`."""
    topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def check_commit(response: OffsetCommitResponse, group_id: str) -> None:
    """Raise the first error of a commit."""
    for topic in response.topics:
        for one in topic.partitions:
            check(one.error_code, what=f"group {group_id}, {topic.name}-{one.partition_index}")


def delete_group(client: ClusterClient, group_id: str) -> None:
    """With its offsets. A group with members is not deleted."""

    def judge(response: DeleteGroupsResponse) -> None:
        for one in response.results:
            if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise no_such_group(group_id)
            check(one.error_code, what=f"group {group_id}")

    request = DeleteGroupsRequest(groups_names=[group_id])
    _call(client, group_id, request, DeleteGroupsResponse, judge, repeatable=False)


def no_such_group(group_id: str) -> RequestError:
    return RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


def _call(
    client: ClusterClient,
    group_id: str,
    request: Message,
    response_type: type[M],
    judge: Callable[[M], object],
    *,
    highest: int | None = None,
    repeatable: bool = True,
) -> tuple[int, M]:
    return call_coordinator(
        client,
        CoordinatorType.GROUP,
        group_id,
        request,
        response_type,
        judge,
        highest=highest,
        repeatable=repeatable,
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
