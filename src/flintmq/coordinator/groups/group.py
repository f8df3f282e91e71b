"""One classic group: who its members are, of which generation, and what they have in common.

Invariants: every instance id belongs to one member; `joined_count` is how many members have a JoinGroup parked; a
group without members is Empty or, for a moment, PreparingRebalance. Members and generation run ahead of the
group's record while it rebalances; in Stable and Empty they are what the record says. Nothing here knows a clock, a
timer or the form of a reply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from flintmq.coordinator.groups.records import GroupValue, MemberValue, group_record
from flintmq.coordinator.runtime.machine import CoordinatorRecord, Token
from flintmq.errors import ErrorCode, ProtocolError, RequestError
from flintmq.protocol.codec import decode
from flintmq.protocol.messages import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupState(StrEnum):
    """Spelled as clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ParkedRequest(NamedTuple):
    """A request that waits in the group."""

    token: Token
    version: int


class MemberProtocol(NamedTuple):
    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """The preferred one first."""
    assignment: bytes = b""
    join: ParkedRequest | None = None
    sync: ParkedRequest | None = None
    is_new: bool = False
    """It has not been told its id by a JoinGroup that succeeded, so it cannot send heartbeats."""

    @property
    def protocol_names(self) -> dict[str, None]:
        return dict.fromkeys(protocol.name for protocol in self.protocols)

    @property
    def is_excused(self) -> bool:
        """Its parked request stands for a heartbeat. Not a new member's: its client may be long gone."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)


@dataclass(slots=True, eq=False)
class Group:
    id: str
    state: GroupState
    state_timestamp: int
    """Since when; -1 where an old record does not say."""
    previous_state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    pending_ids: dict[str, None] = field(default_factory=dict)
    """Member ids that were given out and have not come back with a JoinGroup (KIP-394)."""
    unsynced_ids: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent their SyncGroup."""
    joined_count: int = 0
    subscribed_topics: frozenset[str] | None = None
    """None if that is not known."""
    delay_ms: int | None = None
    """How long the timer of an initial rebalance was set for; None outside of one."""
    delay_left_ms: int = 0
    grew: bool = False
    """A member came since the timer of the initial rebalance was set."""
    _support: dict[str, int] = field(default_factory=dict)
    """How many members know each protocol."""
    _announced: tuple[CoordinatorRecord, GroupValue] | None = None

    # ---- members

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """Raises RequestError for a stranger, and for one whose instance id belongs to another by now (KIP-345)."""
        if instance_id is not None:
            owner = self.static_ids.get(instance_id)
            if owner is not None and owner != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID)
            if owner is None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        found = self.members.get(member_id)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return found

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count_support(member, 1)
        self.joined_count += member.join is not None
        self.pending_ids.pop(member.id, None)

    def remove(self, member_id: str) -> Member | None:
        """Also takes back an id that was only given out. The member may still have a parked request."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            self.joined_count -= member.join is not None
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_ids.pop(member_id, None)
        self.unsynced_ids.pop(member_id, None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id; everything else of it stays, its place among the others too."""
        assert member.instance_id is not None
        old_id, member.id = member.id, member_id
        self.members = {found.id: found for found in self.members.values()}
        self.static_ids[member.instance_id] = member_id
        if old_id in self.unsynced_ids:
            del self.unsynced_ids[old_id]
            self.unsynced_ids[member_id] = None
        if self.leader == old_id:
            self.leader = member_id

    def update(
        self, member: Member, protocols: tuple[MemberProtocol, ...], *, rebalance_ms: int, session_ms: int
    ) -> None:
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def park_join(self, member: Member, request: ParkedRequest) -> None:
        self.joined_count += member.join is None
        member.join = request

    def release_join(self, member: Member) -> ParkedRequest | None:
        request, member.join = member.join, None
        self.joined_count -= request is not None
        return request

    @property
    def all_joined(self) -> bool:
        return self.joined_count == len(self.members) and not self.pending_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """The leader, or another in its place, has rejoined; false if nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is not None:
            return True
        joined = next((member.id for member in self.members.values() if member.join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # ---- protocols

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Someone with these could be a member beside the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and any(
            self._support.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Of the protocols that all members know, the one that most of them prefer."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = next(name for name in member.protocol_names if self._support[name] == len(self.members))
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_support(self, member: Member, change: int) -> None:
        for name in member.protocol_names:
            self._support[name] = self._support.get(name, 0) + change
            if not self._support[name]:
                del self._support[name]

    # ---- states

    def move(self, state: GroupState, now_ms: int) -> None:
        self.previous_state, self.state, self.state_timestamp = self.state, state, now_ms

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscriptions()
        self.unsynced_ids.clear()
        self.move(GroupState.COMPLETING if self.members else GroupState.EMPTY, now_ms)

    @property
    def is_simple(self) -> bool:
        """It only keeps offsets, and never had members."""
        return self.protocol_type is None

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def _subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    # ---- records

    def announce(self, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        """The record of this generation. What it says about the group holds when `confirm` is called with it."""
        members = tuple(
            MemberValue(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                assignments.get(member.id, b""),
            )
            for member in self.members.values()
        )
        return self._announce(
            GroupValue(
                self.protocol_type or "",
                self.generation,
                self.protocol,
                self.leader,
                self.state_timestamp,
                members,
            )
        )

    def announce_new(self) -> CoordinatorRecord:
        """A record for a group that has had no generation yet, whoever is about to join it."""
        return self._announce(GroupValue("", 0, None, None, self.state_timestamp, ()))

    def confirm(self, value: bytes) -> bool:
        """The announced record is written. False if this is not the one."""
        if self._announced is None or self._announced[0].value != value:
            return False
        written, self._announced = self._announced[1], None
        for recorded in written.members:
            self.members[recorded.id].assignment = recorded.assignment
        if self.state is GroupState.COMPLETING:
            self.move(GroupState.STABLE, written.state_timestamp)
        return True

    def retract(self) -> None:
        """The announced record could not be written."""
        self._announced = None

    def _announce(self, value: GroupValue) -> CoordinatorRecord:
        record = group_record(self.id, value)
        self._announced = record, value
        return record

    @classmethod
    def recorded(cls, group_id: str, value: GroupValue) -> Group:
        """The group as its record has it."""
        group = cls(group_id, GroupState.STABLE if value.members else GroupState.EMPTY, value.state_timestamp)
        group.protocol_type = value.protocol_type or None
        group.protocol, group.generation, group.leader = value.protocol, value.generation, value.leader
        for recorded in value.members:
            member = Member(
                id=recorded.id,
                instance_id=recorded.instance_id,
                client_id=recorded.client_id,
                client_host=recorded.client_host,
                rebalance_timeout_ms=recorded.rebalance_timeout_ms,
                session_timeout_ms=recorded.session_timeout_ms,
                protocols=(MemberProtocol(value.protocol or "", recorded.subscription),),
                assignment=recorded.assignment,
            )
            group.add(member, value.protocol_type)
        if group.leader not in group.members:
            group.leader = next(iter(group.members), None)
        group.subscribed_topics = group._subscriptions()
        return group


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """What members of the consumer protocol read; None if one of them says it in a way that makes no sense.

    Every version of a subscription begins as the first one did, after its version.
    """
    topics: set[str] = set()
    for data in metadata:
        if len(data) < 2 or data[0] & 0x80:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, data, 0, 2)[0].topics)
        except ProtocolError:
            return None
    return frozenset(topics)
