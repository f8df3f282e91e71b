"""The phases of a rebalance, and the timers that drive them.

    Empty ──► PreparingRebalance ──► CompletingRebalance ──► Stable
      ▲          │        ▲                  │                 │
      └──────────┘        └──────────────────┴─────────────────┘

In PreparingRebalance members (re)join, until all have or time is up; that makes the next generation. In
CompletingRebalance the leader assigns, and its SyncGroup makes the group Stable by way of a record. Every function
here takes a group one step further and adds what follows from it to the decision that the turn is making.

Timers: of a member's session, of a group's joins, and of its syncs. A timer that comes too late finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from flintmq.coordinator.groups import responses
from flintmq.coordinator.groups.group import Group, GroupState, Member, ParkedRequest
from flintmq.coordinator.runtime.machine import Decision
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a member that does not know its id yet may wait for a rebalance: a client that went away in the meantime
came back as yet another member, and this one must not hold up the group for ever."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's limits, by the names of its settings."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offset_metadata_max_bytes: int = 4096


class SessionTimer(NamedTuple):
    group: str
    member: str
    kind: Literal["session"] = "session"


class JoinTimer(NamedTuple):
    group: str
    kind: Literal["join"] = "join"


class SyncTimer(NamedTuple):
    group: str
    kind: Literal["sync"] = "sync"


@dataclass(slots=True)
class GroupStep:
    """One decision in the making."""

    settings: GroupSettings
    now_ms: int
    decision: Decision = field(default_factory=Decision)

    def refuse_join(self, request: ParkedRequest | None, member_id: str, code: ErrorCode) -> None:
        if request is not None:
            self.decision.respond(request.token, responses.join_refused(request.version, member_id, code))

    def refuse_sync(self, request: ParkedRequest | None, code: ErrorCode) -> None:
        if request is not None:
            self.decision.respond(request.token, SyncGroupResponse(error_code=code))


# ---- sessions


def start_session(step: GroupStep, group: Group, member: Member) -> None:
    step.decision.timers[SessionTimer(group.id, member.id)] = member.session_timeout_ms


def end_session(step: GroupStep, group: Group, member_id: str) -> None:
    step.decision.timers[SessionTimer(group.id, member_id)] = None


def remove_member(step: GroupStep, group: Group, member_id: str) -> None:
    """It left, or was not heard of in time. What it has parked is answered: if it still lives, it joins anew."""
    member = group.remove(member_id)
    end_session(step, group, member_id)
    if member is not None:
        step.refuse_join(member.join, "", ErrorCode.UNKNOWN_MEMBER_ID)
        step.refuse_sync(member.sync, ErrorCode.UNKNOWN_MEMBER_ID)


def expire_session(step: GroupStep, group: Group, member_id: str) -> None:
    if member_id in group.pending_ids:
        remove_member(step, group, member_id)
        if group.state is GroupState.PREPARING and group.all_joined:
            complete_joins(step, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused:
        return
    remove_member(step, group, member_id)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        prepare(step, group)
    elif group.state is GroupState.PREPARING and group.all_joined:
        complete_joins(step, group)


# ---- joins


def rebalance(step: GroupStep, group: Group) -> None:
    """Members have changed: begin a rebalance, or get on with the one that is under way."""
    if group.state is GroupState.PREPARING:
        maybe_complete_joins(step, group)
    else:
        prepare(step, group)


def prepare(step: GroupStep, group: Group) -> None:
    if group.state is GroupState.COMPLETING:
        for member in group.members.values():
            member.assignment = b""
        release_syncs(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.unsynced_ids.clear()
    step.decision.timers[SyncTimer(group.id)] = None
    is_initial = group.state is GroupState.EMPTY
    group.move(GroupState.PREPARING, step.now_ms)
    if is_initial:
        # More members are likely to come: with each, the group waits a little longer, up to its rebalance time-out.
        group.grew = False
        group.delay_ms = step.settings.group_initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        step.decision.timers[JoinTimer(group.id)] = group.delay_ms
    elif group.all_joined:
        complete_joins(step, group)
    else:
        step.decision.timers[JoinTimer(group.id)] = group.rebalance_timeout_ms


def maybe_complete_joins(step: GroupStep, group: Group) -> None:
    """Unless this is an initial rebalance, which takes its time."""
    if (
        group.state is GroupState.PREPARING
        and group.previous_state is not GroupState.EMPTY
        and group.all_joined
    ):
        complete_joins(step, group)


def expire_joins(step: GroupStep, group: Group) -> None:
    if group.state is not GroupState.PREPARING:
        return
    if group.delay_ms is not None and group.grew and group.delay_left_ms:
        group.grew = False
        delay_ms = min(step.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        step.decision.timers[JoinTimer(group.id)] = delay_ms
    else:
        complete_joins(step, group)


def complete_joins(step: GroupStep, group: Group) -> None:
    """The next generation, of those who have joined and of the static members whose session still runs."""
    group.delay_ms = None
    step.decision.timers[JoinTimer(group.id)] = None
    late = [
        member.id for member in group.members.values() if member.join is None and member.instance_id is None
    ]
    for member_id in late:
        remove_member(step, group, member_id)
    if group.members and not group.elect_leader():
        # Nobody is there to lead. Sessions will end, or someone will come.
        step.decision.timers[JoinTimer(group.id)] = group.rebalance_timeout_ms
        return
    group.next_generation(step.now_ms)
    if group.state is GroupState.EMPTY:
        step.decision.records.append(group.announce({}))
        return
    members = tuple(group.members.values())
    for member in members:
        request = group.release_join(member)
        if request is not None:
            for_leader = members if member.id == group.leader else ()
            step.decision.respond(request.token, responses.joined(group, member.id, members=for_leader))
        start_session(step, group, member)
        member.is_new = False
        group.unsynced_ids[member.id] = None
    step.decision.timers[SyncTimer(group.id)] = group.rebalance_timeout_ms


# ---- syncs


def release_syncs(step: GroupStep, group: Group, code: ErrorCode) -> None:
    for member in group.members.values():
        if member.sync is not None:
            step.refuse_sync(member.sync, code)
            member.sync = None
            # While it waited, its session may have run out without consequence.
            start_session(step, group, member)


def note_sync(step: GroupStep, group: Group, member: Member) -> None:
    group.unsynced_ids.pop(member.id, None)
    if not group.unsynced_ids:
        step.decision.timers[SyncTimer(group.id)] = None


def expire_syncs(step: GroupStep, group: Group) -> None:
    """Members that joined this generation and never asked for their part of it are not members."""
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.unsynced_ids:
        return
    for member_id in tuple(group.unsynced_ids):
        remove_member(step, group, member_id)
    prepare(step, group)
