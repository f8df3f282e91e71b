"""What members are answered, in the words of the version they asked in. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flintmq.coordinator.groups.group import Group, GroupState, Member
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeGroupsResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupResponse,
)

CLASSIC: Final = "classic"
NULLABLE_PROTOCOL_VERSION: Final = 7
SKIP_ASSIGNMENT_VERSION: Final = 9
SEVERAL_LEAVE_VERSION: Final = 3
UNKNOWN_GROUP_VERSION: Final = 6

_REMAPPED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """Why the records could not be written, as members understand it."""
    return _REMAPPED.get(code, code)


def join_refused(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        member_id=member_id,
        protocol_name=None if version >= NULLABLE_PROTOCOL_VERSION else "",
    )


def joined(
    group: Group,
    member_id: str,
    *,
    leader: str | None = None,
    members: Sequence[Member] = (),
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """`leader` is said instead of the group's own if given; `members` are for the leader alone."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in members
        ],
    )


def synced(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def left(
    version: int, members: Sequence[tuple[str, str | None, ErrorCode]], code: ErrorCode = ErrorCode.NONE
) -> LeaveGroupResponse:
    """By member id and instance id; `code` says what is wrong with the whole."""
    if code:
        return LeaveGroupResponse(error_code=code)
    if version < SEVERAL_LEAVE_VERSION:
        return LeaveGroupResponse(error_code=next((error for *_, error in members if error), ErrorCode.NONE))
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=instance_id, error_code=error
            )
            for member_id, instance_id, error in members
        ]
    )


def described(group: Group) -> DescribeGroupsResponse.DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group.id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def unknown_group(version: int, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    if version < UNKNOWN_GROUP_VERSION:
        return DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state="Dead")
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state="Dead",
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
    )


def listed(group: Group) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )
