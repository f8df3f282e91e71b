"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, against one group.

Each function checks what the request says against what the group is, and then lets `rebalancing` go on from there. A
request that has to wait is parked in its member; a later one of the same member takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flintmq.coordinator.groups import responses
from flintmq.coordinator.groups.group import Group, GroupState, Member, MemberProtocol, ParkedRequest
from flintmq.coordinator.groups.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    GroupStep,
    SessionTimer,
    end_session,
    maybe_complete_joins,
    note_sync,
    prepare,
    rebalance,
    release_syncs,
    remove_member,
    start_session,
)
from flintmq.coordinator.runtime.machine import Decision
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

MEMBER_ID_REQUIRED_VERSION: Final = 4
PROTOCOL_REQUIRED_VERSION: Final = 5


class GroupClient(NamedTuple):
    """Who asks; the host is written as Kafka does, with a slash before the address."""

    id: str
    host: str


class JoinAttempt(NamedTuple):
    """A JoinGroup, with what does not depend on its version."""

    request: JoinGroupRequest
    parked: ParkedRequest
    client: GroupClient
    new_member_id: str
    protocols: tuple[MemberProtocol, ...]
    rebalance_timeout_ms: int

    @classmethod
    def of(
        cls, request: JoinGroupRequest, parked: ParkedRequest, client: GroupClient, uuid: str
    ) -> JoinAttempt:
        return cls(
            request=request,
            parked=parked,
            client=client,
            new_member_id=f"{client.id if request.group_instance_id is None else request.group_instance_id}-{uuid}",
            protocols=tuple(MemberProtocol(one.name, bytes(one.metadata)) for one in request.protocols),
            # The first version has one time-out for both.
            rebalance_timeout_ms=request.rebalance_timeout_ms
            if parked.version
            else request.session_timeout_ms,
        )


# ---- JoinGroup


def join(step: GroupStep, group: Group, joining: JoinAttempt) -> None:
    request = joining.request
    member_id = request.member_id
    if not _has_room(step, group, member_id):
        if member_id in group.members or member_id in group.pending_ids:
            remove_member(step, group, member_id)
            maybe_complete_joins(step, group)
        step.refuse_join(joining.parked, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports(request.protocol_type, [protocol.name for protocol in joining.protocols]):
        step.refuse_join(joining.parked, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif member_id:
        _join_known(step, group, joining)
    elif request.group_instance_id is not None:
        known_id = group.static_ids.get(request.group_instance_id)
        if known_id is None:
            _add(step, group, joining, joining.new_member_id)
        else:
            _replace_static(step, group, joining, group.members[known_id])
    elif joining.parked.version >= MEMBER_ID_REQUIRED_VERSION:
        # KIP-394: who does not come back with this id was not there.
        group.pending_ids[joining.new_member_id] = None
        step.decision.timers[SessionTimer(group.id, joining.new_member_id)] = request.session_timeout_ms
        step.refuse_join(joining.parked, joining.new_member_id, ErrorCode.MEMBER_ID_REQUIRED)
    else:
        _add(step, group, joining, joining.new_member_id)


def _has_room(step: GroupStep, group: Group, member_id: str) -> bool:
    limit = step.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING:
        # Those who have joined are counted, not members: if the limit was lowered, the last to rejoin have to go.
        return (member is not None and member.join is not None) or group.joined_count < limit
    return member is not None or len(group.members) < limit


def _join_known(step: GroupStep, group: Group, joining: JoinAttempt) -> None:
    request = joining.request
    if request.member_id in group.pending_ids and request.group_instance_id is None:
        _add(step, group, joining, request.member_id)
        return
    try:
        member = group.member(request.member_id, request.group_instance_id)
    except RequestError as error:
        step.refuse_join(joining.parked, request.member_id, error.code)
        return
    is_leader = member.id == group.leader
    is_same = member.protocols == joining.protocols
    if group.state is GroupState.COMPLETING and is_same:
        # Its reply got lost.
        members = tuple(group.members.values()) if is_leader else ()
        step.decision.respond(joining.parked.token, responses.joined(group, member.id, members=members))
    elif group.state is GroupState.STABLE and is_same and not is_leader:
        step.decision.respond(joining.parked.token, responses.joined(group, member.id))
    else:
        # Also if the leader has nothing new to say: this is how it asks for a rebalance when topics have changed.
        _update(step, group, joining, member)
        rebalance(step, group)


def _add(step: GroupStep, group: Group, joining: JoinAttempt, member_id: str) -> None:
    request = joining.request
    member = Member(
        id=member_id,
        instance_id=request.group_instance_id,
        client_id=joining.client.id,
        client_host=joining.client.host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joining.protocols,
        join=joining.parked,
        is_new=True,
    )
    if group.delay_ms is not None:
        group.grew = True
    group.add(member, request.protocol_type)
    step.decision.timers[SessionTimer(group.id, member_id)] = NEW_MEMBER_JOIN_TIMEOUT_MS
    rebalance(step, group)


def _update(step: GroupStep, group: Group, joining: JoinAttempt, member: Member) -> None:
    # The request that this one takes the place of has nobody to wait for it, but holds up its connection.
    step.refuse_join(member.join, member.id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.update(
        member,
        joining.protocols,
        rebalance_ms=joining.rebalance_timeout_ms,
        session_ms=joining.request.session_timeout_ms,
    )
    group.park_join(member, joining.parked)


def _replace_static(step: GroupStep, group: Group, joining: JoinAttempt, member: Member) -> None:
    """KIP-345: a static member was restarted. It keeps its assignment; in a stable group nobody else notices."""
    old_id, old_leader = member.id, group.leader
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    step.refuse_join(group.release_join(member), old_id, ErrorCode.FENCED_INSTANCE_ID)
    step.refuse_sync(member.sync, ErrorCode.FENCED_INSTANCE_ID)
    member.sync, member.is_new = None, False
    end_session(step, group, old_id)
    group.rename(member, joining.new_member_id)
    start_session(step, group, member)
    _update(step, group, joining, member)
    if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
        # Also while the leader assigns: it has been told the old id, and the new one would get nothing.
        rebalance(step, group)
        return
    group.release_join(member)
    if joining.parked.version >= responses.SKIP_ASSIGNMENT_VERSION:
        # KIP-814: the leader learns that it leads, and that there is nothing for it to assign.
        is_leader = member.id == group.leader
        members = tuple(group.members.values()) if is_leader else ()
        response = responses.joined(group, member.id, members=members, skip_assignment=is_leader)
    else:
        # Told of its old id, a leader does not know itself again and leaves the assignment as it is.
        response = responses.joined(group, member.id, leader=old_leader)
    decision = step.decision.respond(joining.parked.token, response)
    decision.records.append(group.announce({one.id: one.assignment for one in group.members.values()}))

    def failed(code: ErrorCode) -> Decision:
        group.retract()
        group.update(member, before[0], rebalance_ms=before[1], session_ms=before[2])
        group.rename(member, old_id)
        undone = GroupStep(step.settings, step.now_ms)
        start_session(undone, group, member)
        undone.decision.responses += [one for one in decision.responses if one[0] != joining.parked.token]
        undone.refuse_join(joining.parked, "", responses.write_error(code))
        return undone.decision

    decision.failed = failed


# ---- SyncGroup


def sync(step: GroupStep, group: Group, request: SyncGroupRequest, parked: ParkedRequest) -> None:
    """Raises RequestError."""
    member = group.member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION)
    for said, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if said is not None and said != actual:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING:
        raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
    note_sync(step, group, member)
    if group.state is GroupState.STABLE:
        step.decision.respond(parked.token, responses.synced(group, member.assignment))
        return
    step.refuse_sync(member.sync, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync = parked
    if member.id == group.leader:
        _assign(step, group, {one.member_id: bytes(one.assignment) for one in request.assignments})


def _assign(step: GroupStep, group: Group, assignments: dict[str, bytes]) -> None:
    decision = step.decision
    decision.records.append(group.announce(assignments))
    waiting: list[tuple[Member, ParkedRequest]] = []
    for member in group.members.values():
        if member.sync is not None:
            waiting.append((member, member.sync))
            decision.respond(member.sync.token, responses.synced(group, assignments.get(member.id, b"")))
            member.sync = None
            start_session(step, group, member)

    def failed(code: ErrorCode) -> Decision:
        group.retract()
        undone = GroupStep(step.settings, step.now_ms)
        # Those that were answered before the assignment are in front, and stay answered.
        undone.decision.responses += decision.responses[: len(decision.responses) - len(waiting)]
        for member, request in waiting:
            member.sync = request
        release_syncs(undone, group, responses.write_error(code))
        prepare(undone, group)
        return undone.decision

    decision.failed = failed


# ---- Heartbeat, LeaveGroup


def heartbeat(
    step: GroupStep, group: Group, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Raises RequestError."""
    member = group.member(member_id, instance_id)
    if generation != group.generation:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION)
    start_session(step, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE


def leave(
    step: GroupStep, group: Group, leaving: Sequence[LeaveGroupRequest.MemberIdentity]
) -> list[tuple[str, str | None, ErrorCode]]:
    """What became of each, by member id and instance id."""
    outcomes = [
        (one.member_id, one.group_instance_id, _leave(step, group, one.member_id, one.group_instance_id))
        for one in leaving
    ]
    if any(code is ErrorCode.NONE for *_, code in outcomes):
        if group.state is GroupState.PREPARING:
            maybe_complete_joins(step, group)
        elif group.state is not GroupState.EMPTY:
            rebalance(step, group)
    return outcomes


def _leave(step: GroupStep, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    if not member_id:
        # An operator removes a static member by its instance id alone.
        member_id = group.static_ids.get(instance_id or "", "")
        if instance_id is None or not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.pending_ids:
        try:
            group.member(member_id, instance_id)
        except RequestError as error:
            return error.code
    remove_member(step, group, member_id)
    return ErrorCode.NONE
