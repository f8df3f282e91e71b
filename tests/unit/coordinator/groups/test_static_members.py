"""Static members are restarted without a rebalance, and fence the one before (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.groups.group import GroupState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import JoinGroupResponse
from unit.coordinator.groups.world import World, subscription


def static(world: World, *instances: str) -> dict[str, str]:
    """Member ids by instance, of a stable group led by the first."""
    tokens = {instance: world.ask_join(instance=instance) for instance in instances}
    world.advance(6_000)
    ids = {instance: world.joined(token).member_id for instance, token in tokens.items()}
    for instance in reversed(instances):
        assignments = {one: name.encode() for name, one in ids.items()} if instance == instances[0] else {}
        world.ask_sync(ids[instance], 1, assignments, instance=instance)
    assert world.group().state is GroupState.STABLE
    return ids


def test_a_static_member_joins_in_one_step_under_its_own_name() -> None:
    world = World()
    assert static(world, "i1") == {"i1": "i1-uuid1"}


def test_a_restarted_follower_keeps_its_assignment() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    reply = world.joined(world.ask_join(instance="i2"))
    assert reply.member_id not in ids.values()
    assert (reply.generation_id, reply.leader, reply.skip_assignment) == (1, ids["i1"], False)
    assert world.assignment(world.ask_sync(reply.member_id, 1, instance="i2")) == b"i2"
    assert world.group().state is GroupState.STABLE
    assert World(log=world.log).group().static_ids == {"i1": ids["i1"], "i2": reply.member_id}


def test_a_restarted_leader_learns_that_it_leads_and_has_nothing_to_assign() -> None:
    """KIP-814."""
    world = World()
    static(world, "i1", "i2")
    reply = world.joined(world.ask_join(instance="i1"))
    assert (reply.leader, reply.skip_assignment) == (reply.member_id, True)
    assert len(reply.members) == 2


def test_a_restarted_leader_of_an_old_version_does_not_know_that_it_leads() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    reply = world.joined(world.ask_join(instance="i1", version=8))
    assert (reply.leader, reply.skip_assignment, reply.members) == (ids["i1"], False, [])
    assert world.group().leader == reply.member_id


def test_the_one_before_is_fenced() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    world.ask_join(instance="i2")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(ids["i2"], 1, instance="i2") == fenced
    assert world.sync_code(world.ask_sync(ids["i2"], 1, instance="i2")) == fenced
    assert world.join_code(world.ask_join(ids["i2"], instance="i2")) == fenced
    assert [one.error_code for one in world.leave((ids["i2"], "i2")).members] == [fenced]
    commit = world.commit({("t", 0): 1}, member_id=ids["i2"], generation=1, instance="i2")
    assert commit == [fenced]
    assert world.heartbeat(ids["i2"], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_parked_request_of_the_one_before_is_fenced() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    join = world.ask_join(ids["i1"], instance="i1")
    world.ask_join(instance="i1")
    assert world.join_code(join) == ErrorCode.FENCED_INSTANCE_ID
    assert world.reply(join, JoinGroupResponse).member_id == ids["i1"]


def test_a_restart_while_the_leader_assigns_means_another_rebalance() -> None:
    world = World()
    tokens = [world.ask_join(instance=instance) for instance in ("i1", "i2")]
    world.advance(6_000)
    second = world.joined(tokens[1]).member_id
    sync = world.ask_sync(second, 1, instance="i2")
    restarted = world.ask_join(instance="i2")
    assert world.sync_code(sync) == ErrorCode.FENCED_INSTANCE_ID
    assert world.group().state is GroupState.PREPARING
    world.ask_join(world.joined(tokens[0]).member_id, instance="i1")
    assert world.joined(restarted).generation_id == 2


def test_a_restart_that_changes_the_protocol_means_a_rebalance() -> None:
    world = World()
    both = {"range": subscription("t"), "sticky": b""}
    tokens = [world.ask_join(instance=one, protocols=both) for one in ("i1", "i2", "i3")]
    world.advance(6_000)
    ids = [world.joined(token).member_id for token in tokens]
    world.ask_sync(ids[0], 1, {}, instance="i1")
    restarted = world.ask_join(instance="i2", protocols={"sticky": b""})
    assert world.waits(restarted)
    assert world.group().state is GroupState.PREPARING


def test_a_static_member_that_is_late_stays_until_its_session_ends() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    world.advance(1)
    token = world.ask_join(ids["i1"], instance="i1", rebalance_ms=7_000)
    for _ in range(59):
        world.advance(1_000)
        world.heartbeat(ids["i2"], 1, instance="i2")
    world.advance(1_000)
    assert len(world.joined(token).members) == 2
    world.advance(10_000)
    assert ids["i2"] not in world.group().members


def test_if_nobody_rejoins_a_static_group_waits_for_sessions_to_end() -> None:
    world = World()
    ids = static(world, "i1", "i2", "i3")
    world.leave(("", "i3"))
    for _ in range(70):
        world.advance(1_000)
        world.heartbeat(ids["i1"], 1, instance="i1")
    assert (world.group().state, list(world.group().members)) == (GroupState.PREPARING, [ids["i1"]])
    world.advance(10_000)
    assert world.group().state is GroupState.EMPTY


def test_an_operator_removes_a_static_member_by_its_name_alone() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    assert [one.error_code for one in world.leave(("", "i2")).members] == [ErrorCode.NONE]
    assert list(world.group().members) == [ids["i1"]]


def test_a_restart_that_cannot_be_recorded_leaves_the_one_before() -> None:
    world = World()
    ids = static(world, "i1", "i2")
    world.refuse_writes = ErrorCode.REQUEST_TIMED_OUT
    token = world.ask_join(instance="i1", session_ms=6_001)
    assert world.join_code(token) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = world.group()
    assert (group.leader, list(group.members), group.joined_count) == (ids["i1"], list(ids.values()), 0)
    assert group.members[ids["i1"]].session_timeout_ms == 10_000
    assert world.heartbeat(ids["i1"], 1, instance="i1") == ErrorCode.NONE


@pytest.mark.parametrize("instance", ["i1", "unheard"])
def test_an_id_that_was_given_out_has_no_instance(instance: str) -> None:
    world = World()
    static(world, "i1")
    code = world.join_code(world.ask_join(world.new_id(), instance=instance))
    assert code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)
