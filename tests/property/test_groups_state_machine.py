"""Whatever members do, and however often the broker dies: groups keep their promises (Z2, Z7, R7, R8).

Members join, sync, beat, leave, fall silent and come back; offsets are committed, in transactions and without; time
passes; writes fail; the machine is rebuilt from its records, all of them or those that compaction leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from flintmq.coordinator.groups import GroupSettings
from flintmq.coordinator.groups.group import Group, GroupState
from flintmq.coordinator.groups.records import GroupKey, read_key
from flintmq.coordinator.runtime.machine import Decision, StoredRecord, Token
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import JoinGroupResponse, SyncGroupResponse
from unit.coordinator.groups.world import Marker, World, subscription

GROUPS = ("g", "h")
CAST = (("g", None), ("g", None), ("g", None), ("g", "i"), ("g", "i"), ("h", None))
"""Two of them go by the same name, and fence each other."""
ACTORS = st.integers(0, len(CAST) - 1)
PROTOCOLS = (
    {"range": subscription("t")},
    {"sticky": b"", "range": subscription("t", "u")},
    {"range": b"?", "sticky": b""},
)
PLACES = st.sampled_from((("t", 0), ("t", 1), ("u", 0)))
PRODUCERS = st.sampled_from((1, 2))
QUIET_MS = 3_600_000


@dataclass(eq=False)
class Actor:
    """A client, with what it has been told."""

    group: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] | None = None
    """Whom it has to give assignments to."""
    join: Token = 0
    sync: Token = 0


Durable = tuple[str, int, str | None, str | None, str | None, tuple[tuple[str, str | None, bytes], ...]]


class WatchedWorld(World):
    """Remembers what each group was when it was last Stable or Empty, and its record therefore says."""

    def __init__(self, settings: GroupSettings) -> None:
        self.durable: dict[str, Durable] = {}
        self._unrecorded: set[str] = set()
        """Groups of which the last record may be missing, because a write failed."""
        super().__init__(settings)

    def perform(self, decision: Decision, producer_id: int = -1) -> None:
        end, refused_count = len(self.log), self.refused_count
        super().perform(decision, producer_id)
        if self.refused_count > refused_count:
            self._unrecorded = set(GROUPS)
        for record in self.log[end:]:
            key = read_key(record.key) if isinstance(record, StoredRecord) else None
            if isinstance(key, GroupKey):
                self._unrecorded.discard(key.group)
        for group_id in GROUPS:
            group = self.groups.get(group_id)
            if group is None:
                self.durable.pop(group_id, None)
            elif group.state in (GroupState.STABLE, GroupState.EMPTY) and group_id not in self._unrecorded:
                self.durable[group_id] = durable(group)

    def start(self, log: Sequence[StoredRecord | Marker]) -> None:
        self._unrecorded = set()
        super().start(log)


def durable(group: Group) -> Durable:
    members = sorted((one.id, one.instance_id, one.assignment) for one in group.members.values())
    return (
        group.state.value,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        tuple(members),
    )


class GroupsStories(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from((0, 1_000)), max_size=st.sampled_from((2, 100)), warm=st.booleans())
    def begin(self, delay_ms: int, max_size: int, warm: bool) -> None:
        self.world = WatchedWorld(
            GroupSettings(group_initial_rebalance_delay_ms=delay_ms, group_max_size=max_size)
        )
        self.asked: set[Token] = set()
        self.lost: set[Token] = set()
        self.generations: dict[str, int] = {}
        self.everyone = [Actor(group, instance) for group, instance in CAST]
        if warm:
            self.rebalance("g", 5_000)

    # ---- members

    @rule(who=ACTORS, wish=st.integers(0, 2), version=st.sampled_from((3, 8, 9)))
    def join(self, who: int, wish: int, version: int) -> None:
        actor = self.everyone[who]
        self._join(actor, wish, 9 if actor.instance else version)

    def _join(self, actor: Actor, wish: int, version: int) -> None:
        self._hear(actor)
        actor.join = self.world.ask_join(
            actor.member_id,
            group=actor.group,
            instance=actor.instance,
            protocols=PROTOCOLS[wish],
            rebalance_ms=20_000,
            version=version,
        )
        self.asked.add(actor.join)
        self._hear(actor)

    @rule(who=ACTORS)
    def sync(self, who: int) -> None:
        self._sync(self.everyone[who])

    def _sync(self, actor: Actor) -> None:
        self._hear(actor)
        assignments = {}
        if actor.leads is not None:
            assignments = {one: f"{actor.generation}:{one}".encode() for one in actor.leads}
        group = self.world.groups.get(actor.group)
        was_open = group is not None and group.state is GroupState.COMPLETING
        actor.sync = self.world.ask_sync(
            actor.member_id,
            actor.generation,
            assignments,
            group=actor.group,
            instance=actor.instance,
            protocol_type=None,
            protocol=None,
            version=4,
        )
        self.asked.add(actor.sync)
        if group is not None and was_open and group.state is GroupState.STABLE:
            given = {one.id: one.assignment for one in group.members.values()}
            assert given == {one: assignments.get(one, b"") for one in group.members}
        self._hear(actor)

    @rule(group=st.sampled_from(GROUPS), ms=st.sampled_from((0, 1_000, 5_000)))
    def rebalance(self, group: str, ms: int) -> None:
        """Everyone does what a good client does, until the group is stable."""
        actors = [actor for actor in self.everyone if actor.group == group]
        for _ in range(2):
            for actor in actors:
                if not actor.join:
                    self._join(actor, 0, 9)
        self.world.advance(ms)
        for actor in actors:
            self._hear(actor)
            if not actor.sync and actor.generation > 0:
                self._sync(actor)
        group_now = self.world.groups.get(group)
        event(f"rebalanced to {group_now.state.value if group_now else 'nothing'}")

    @rule(who=ACTORS)
    def beat(self, who: int) -> None:
        actor = self.everyone[who]
        self._hear(actor)
        self.world.heartbeat(actor.member_id, actor.generation, group=actor.group, instance=actor.instance)

    @rule(who=ACTORS)
    def leave(self, who: int) -> None:
        actor = self.everyone[who]
        self._hear(actor)
        self.world.leave((actor.member_id, actor.instance), group=actor.group)

    @rule(who=ACTORS)
    def start_anew(self, who: int) -> None:
        """The client is killed: its requests stay parked, and another comes in its place."""
        self.everyone[who] = Actor(*CAST[who])

    def _hear(self, actor: Actor) -> None:
        joined = self.world.responses.get(actor.join)
        if isinstance(joined, JoinGroupResponse):
            actor.join = 0
            if joined.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                actor.member_id = joined.member_id
            elif joined.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                actor.member_id, actor.generation, actor.leads = "", -1, None
            if joined.error_code == ErrorCode.NONE:
                actor.generation = joined.generation_id
                is_leader = joined.leader == joined.member_id and not joined.skip_assignment
                actor.leads = tuple(one.member_id for one in joined.members) if is_leader else None
        synced = self.world.responses.get(actor.sync)
        if isinstance(synced, SyncGroupResponse):
            actor.sync = 0
            if synced.error_code == ErrorCode.NONE and synced.assignment:
                # What its leader assigned in this generation, and to nobody else.
                generation, member_id = synced.assignment.decode().split(":")
                assert int(generation) == actor.generation
                assert member_id == actor.member_id or actor.instance is not None

    # ---- offsets

    @rule(who=ACTORS, place=PLACES, offset=st.integers(0, 9))
    def commit(self, who: int, place: tuple[str, int], offset: int) -> None:
        actor = self.everyone[who]
        self._hear(actor)
        self.world.commit(
            {place: offset},
            group=actor.group,
            member_id=actor.member_id,
            generation=actor.generation,
            instance=actor.instance,
        )

    @rule(group=st.sampled_from(GROUPS), place=PLACES, offset=st.integers(0, 9), producer_id=PRODUCERS)
    def commit_in_transaction(
        self, group: str, place: tuple[str, int], offset: int, producer_id: int
    ) -> None:
        self.world.commit_in_transaction(producer_id, {place: offset}, group=group)

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.world.end_transaction(producer_id, committed=committed)

    @rule()
    def expire_offsets(self) -> None:
        for decision in self.world.machine.expire_offsets(self.world.now_ms):
            self.world.perform(decision)

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        token = self.world.token(2)
        self.world.perform(self.world.machine.delete_groups(token, [group], 2))

    # ---- the world

    @rule(ms=st.sampled_from((0, 500, 1_000, 5_000, 10_000, 20_000, 300_000)))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(code=st.sampled_from((None, None, ErrorCode.NOT_ENOUGH_REPLICAS)))
    def writes(self, code: ErrorCode | None) -> None:
        self.world.refuse_writes = code

    @rule(compacted=st.booleans())
    def crash(self, compacted: bool) -> None:
        """Parked requests go down with the broker; what was recorded comes back."""
        before, offsets = dict(self.world.durable), self._offsets(self.world)
        self.lost |= {token for token in self.asked if self.world.waits(token)}
        self.world.start(compaction(self.world.log) if compacted else self.world.log)
        # A generation that nobody was assigned anything in is not recorded.
        self.generations = {}
        event(f"crashed with {[one[0] for one in before.values()]}")
        assert self._offsets(self.world) == offsets
        for group_id, expected in before.items():
            group = self.world.groups.get(group_id)
            # A group over its limit rebalances as soon as it is loaded; one that only kept offsets is gone with them.
            if group is not None and group.state is not GroupState.PREPARING:
                assert durable(group) == expected
            assert group is not None or expected[1] == 0

    # ---- promises

    @invariant()
    def generations_only_rise(self) -> None:
        if not hasattr(self, "world"):
            return
        for group_id, group in self.world.groups.items():
            assert group.generation >= self.generations.get(group_id, 0)
        self.generations = {group_id: group.generation for group_id, group in self.world.groups.items()}

    @invariant()
    def members_are_as_they_should_be(self) -> None:
        if not hasattr(self, "world"):
            return
        for group in self.world.groups.values():
            members = group.members.values()
            instances = [one.instance_id for one in members if one.instance_id is not None]
            assert sorted(instances) == sorted(group.static_ids)
            assert all(group.members[one].instance_id == name for name, one in group.static_ids.items())
            assert group.joined_count == sum(one.join is not None for one in members)
            assert (group.leader in group.members) == bool(members)
            assert all(one.join is None for one in members) or group.state is GroupState.PREPARING
            assert all(one.sync is None for one in members) or group.state is GroupState.COMPLETING
            assert bool(members) or group.state in (GroupState.EMPTY, GroupState.PREPARING)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.refuse_writes = None
        self.world.advance(QUIET_MS)
        unanswered = {token for token in self.asked if self.world.waits(token)} - self.lost
        assert not unanswered
        assert not any(group.members for group in self.world.groups.values())

    def _offsets(self, world: World) -> object:
        return [
            (
                world.fetch(group=group),
                world.fetch(("t", 0), ("t", 1), ("u", 0), group=group, require_stable=True),
            )
            for group in GROUPS
        ]


def compaction(log: list[StoredRecord | Marker]) -> list[StoredRecord | Marker]:
    """Of each key the last record that counts, up to the first transaction that is open."""
    ends: dict[int, list[tuple[int, bool]]] = {}
    for at, record in enumerate(log):
        if not isinstance(record, StoredRecord):
            ends.setdefault(record[0], []).append((at, record[1]))

    def outcome(at: int, stored: StoredRecord) -> bool | None:
        if stored.producer_id == -1:
            return True
        return next((committed for end, committed in ends.get(stored.producer_id, []) if end > at), None)

    outcomes = [
        outcome(at, record) if isinstance(record, StoredRecord) else True for at, record in enumerate(log)
    ]
    stable_end = outcomes.index(None) if None in outcomes else len(log)
    last = {
        record.key: at
        for at, record in enumerate(log[:stable_end])
        if isinstance(record, StoredRecord) and outcomes[at]
    }
    return [
        record
        for at, record in enumerate(log)
        if at >= stable_end or not isinstance(record, StoredRecord) or last.get(record.key) == at
    ]


TestGroups = GroupsStories.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
