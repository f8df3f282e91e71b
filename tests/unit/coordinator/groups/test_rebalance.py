"""From one generation to the next: joins, syncs, heartbeats, departures and those who never answer (Z2, KIP-62)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.groups import GroupSettings
from flintmq.coordinator.groups.group import GroupState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import SyncGroupResponse
from unit.coordinator.groups.world import World, subscription


def test_everyone_gets_what_the_leader_assigned() -> None:
    world = World()
    ids = [world.new_id() for _ in range(3)]
    for one in ids:
        world.ask_join(one)
    world.advance(6_000)
    early = world.ask_sync(ids[1], 1)
    assert world.waits(early)
    leader = world.ask_sync(ids[0], 1, {ids[0]: b"zero", ids[1]: b"one"})
    late = world.ask_sync(ids[2], 1)
    assert [world.assignment(token) for token in (leader, early, late)] == [b"zero", b"one", b""]
    reply = world.reply(early, SyncGroupResponse)
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert world.group().state is GroupState.STABLE


def test_assignments_are_recorded_before_they_are_told() -> None:
    world = World()
    ids = world.stable(2)
    rebuilt = World(log=world.log)
    group = rebuilt.group()
    assert (group.state, group.generation, group.leader, group.protocol) == (
        GroupState.STABLE,
        1,
        ids[0],
        "range",
    )
    assert {one.id: one.assignment for one in group.members.values()} == {one: one.encode() for one in ids}
    assert rebuilt.heartbeat(ids[1], 1) == ErrorCode.NONE


def test_an_assignment_that_cannot_be_recorded_means_another_rebalance() -> None:
    world = World()
    ids = [world.new_id() for _ in range(2)]
    for one in ids:
        world.ask_join(one)
    world.advance(6_000)
    follower = world.ask_sync(ids[1], 1)
    world.refuse_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    leader = world.ask_sync(ids[0], 1, dict.fromkeys(ids, b"x"))
    assert world.sync_code(leader) == world.sync_code(follower) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group().state is GroupState.PREPARING
    world.refuse_writes = None
    tokens = [world.ask_join(one) for one in ids]
    assert {world.joined(token).generation_id for token in tokens} == {2}


def test_a_sync_that_is_sent_again_takes_the_place_of_the_first() -> None:
    world = World()
    ids = [world.new_id() for _ in range(2)]
    for one in ids:
        world.ask_join(one)
    world.advance(6_000)
    first, second = world.ask_sync(ids[1], 1), world.ask_sync(ids[1], 1)
    assert world.sync_code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    world.ask_sync(ids[0], 1, {ids[1]: b"yours"})
    assert world.assignment(second) == b"yours"
    assert world.assignment(world.ask_sync(ids[1], 1)) == b"yours"


def test_a_sync_of_another_generation_protocol_or_member_is_refused() -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.sync_code(world.ask_sync(leader, 2)) == ErrorCode.ILLEGAL_GENERATION
    assert world.sync_code(world.ask_sync("nobody", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync_code(world.ask_sync(leader, 1, group="other")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync_code(world.ask_sync(leader, 1, group="")) == ErrorCode.INVALID_GROUP_ID
    for protocol_type, protocol in (("consumer", "sticky"), ("connect", "range"), ("consumer", None)):
        token = world.ask_sync(leader, 1, protocol_type=protocol_type, protocol=protocol)
        assert world.sync_code(token) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.assignment(world.ask_sync(leader, 1, protocol=None, protocol_type=None, version=4))


def test_a_follower_that_lost_its_reply_is_told_again_without_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert world.joined(world.ask_join(follower)).generation_id == 1
    assert world.group().state is GroupState.STABLE
    token = world.ask_join(leader)
    assert world.waits(token)
    assert world.group().state is GroupState.PREPARING


def test_while_the_leader_assigns_the_same_join_gets_the_same_reply() -> None:
    world = World()
    ids = [world.new_id() for _ in range(2)]
    for one in ids:
        world.ask_join(one)
    world.advance(6_000)
    assert len(world.joined(world.ask_join(ids[0])).members) == 2
    assert world.joined(world.ask_join(ids[1])).members == []
    assert world.group().state is GroupState.COMPLETING


def test_a_follower_with_another_subscription_means_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    token = world.ask_join(follower, protocols={"range": subscription("t", "u")})
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.joined(world.ask_join(leader)).generation_id == 2
    assert world.joined(token).generation_id == 2
    assert world.group().subscribed_topics == frozenset(("t", "u"))


def test_a_new_member_sends_waiting_syncs_back_to_join() -> None:
    world = World()
    ids = [world.new_id() for _ in range(2)]
    for one in ids:
        world.ask_join(one)
    world.advance(6_000)
    waiting = world.ask_sync(ids[1], 1)
    world.ask_join(version=1)
    assert world.sync_code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync_code(world.ask_sync(ids[0], 1, {})) == ErrorCode.REBALANCE_IN_PROGRESS


def test_those_who_do_not_rejoin_in_time_are_out() -> None:
    world = World()
    ids = world.stable(3, session_ms=120_000, rebalance_ms=20_000)
    token = world.ask_join(ids[1], rebalance_ms=20_000)
    assert world.waits(token) is False  # A follower with nothing new.
    token = world.ask_join(ids[1], protocols={"range": b""}, rebalance_ms=20_000)
    world.advance(19_999)
    assert world.waits(token)
    world.advance(1)
    reply = world.joined(token)
    assert (reply.leader, reply.generation_id, len(reply.members)) == (ids[1], 2, 1)
    assert world.heartbeat(ids[0], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_is_not_heard_of_is_out_and_the_others_rebalance() -> None:
    world = World()
    leader, silent = world.stable(2)
    for _ in range(3):
        world.advance(4_000)
        if silent in world.group().members:
            assert world.heartbeat(leader, 1) == ErrorCode.NONE
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.joined(world.ask_join(leader)).generation_id == 2


def test_who_waits_for_a_rebalance_need_not_send_heartbeats() -> None:
    world = World()
    leader, follower = world.stable(2)
    token = world.ask_join(leader)
    for _ in range(5):
        world.advance(9_000)
        world.heartbeat(follower, 1)
    assert world.waits(token)
    world.ask_join(follower)
    assert world.joined(token).generation_id == 2
    world.advance(9_999)
    assert len(world.group().members) == 2
    world.advance(1)
    assert not world.group().members


def test_the_last_member_leaves_an_empty_group_with_a_record_of_it() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.advance(10_000)
    assert (world.group().state, world.group().generation) == (GroupState.EMPTY, 2)
    rebuilt = World(log=world.log)
    group = rebuilt.group()
    assert (group.state, group.generation, group.protocol, group.leader) == (GroupState.EMPTY, 2, None, None)
    assert (group.protocol_type, group.state_timestamp) == ("consumer", world.group().state_timestamp)
    assert rebuilt.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_may_be_joined_with_another_protocol_type() -> None:
    world = World()
    world.leave((world.stable(1)[0], None))
    token = world.ask_join(version=1, protocol_type="connect", protocols={"eager": b""})
    world.advance(3_000)
    reply = world.joined(token)
    assert (world.group().protocol_type, reply.protocol_name, reply.generation_id) == ("connect", "eager", 3)


def test_members_that_never_sync_are_out() -> None:
    """Without this a member that dies after its join would hold up the generation for ever."""
    world = World()
    ids = world.stable(1, rebalance_ms=8_000)
    second = world.new_id()
    tokens = [world.ask_join(ids[0], rebalance_ms=8_000), world.ask_join(second, rebalance_ms=8_000)]
    assert all(world.joined(token).generation_id == 2 for token in tokens)
    world.assignment(world.ask_sync(ids[0], 2, {ids[0]: b"a", second: b"b"}))
    for _ in range(2):
        world.advance(4_000)
        world.heartbeat(ids[0], 2)
        world.heartbeat(second, 2)
    assert list(world.group().members) == [ids[0]]
    assert world.heartbeat(ids[0], 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_replaced() -> None:
    world = World()
    leader, follower = [world.new_id() for _ in range(2)]
    for one in (leader, follower):
        world.ask_join(one, rebalance_ms=8_000)
    world.advance(6_000)
    waiting = world.ask_sync(follower, 1)
    for _ in range(4):
        world.advance(2_000)
        world.heartbeat(leader, 1)
    assert world.sync_code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.joined(world.ask_join(follower)).leader == follower


@pytest.mark.parametrize("version", [1, 3])
def test_a_member_that_leaves_means_a_rebalance(version: int) -> None:
    world = World()
    leader, follower = world.stable(2)
    reply = world.leave((leader, None), version=version)
    assert reply.error_code == ErrorCode.NONE
    assert [one.error_code for one in reply.members] == [ErrorCode.NONE] * (version == 3)
    assert world.joined(world.ask_join(follower)).leader == follower
    assert world.leave(("nobody", None), version=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_several_leave_at_once_each_with_an_answer() -> None:
    world = World()
    ids = world.stable(2)
    pending = world.new_id()
    reply = world.leave(
        (ids[0], None), ("nobody", None), (pending, None), ("", "instance"), (ids[1], "instance")
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error_code for one in reply.members] == [0, unknown, 0, unknown, unknown]
    assert list(world.group().members) == [ids[1]]
    missing = world.leave((ids[0], None), group="other")
    assert [one.error_code for one in missing.members] == [unknown]
    assert world.leave((ids[0], None), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_who_leaves_while_waiting_is_told() -> None:
    world = World()
    leader, follower = world.stable(2)
    join = world.ask_join(leader)
    world.leave((leader, None))
    assert world.join_code(join) == ErrorCode.UNKNOWN_MEMBER_ID
    world.ask_join(follower)
    third = world.new_id()
    world.ask_join(third)
    world.ask_join(follower)
    generation = world.group().generation
    sync = world.ask_sync(third, generation)
    world.leave((third, None))
    assert world.sync_code(sync) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_is_refused_if_the_empty_group_cannot_be_recorded() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.refuse_writes = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.leave((leader, None)).error_code == ErrorCode.NOT_COORDINATOR
    assert world.group().state is GroupState.EMPTY


def test_heartbeats_of_strangers_and_of_the_past_are_refused() -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.heartbeat(leader, 1) == ErrorCode.NONE
    assert world.heartbeat(leader, 0) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, 1, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(leader, 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert world.heartbeat(leader, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_count_while_the_leader_assigns() -> None:
    world = World()
    member = world.new_id()
    world.ask_join(member)
    world.advance(3_000)
    assert world.heartbeat(member, 1) == ErrorCode.NONE


def test_after_a_restart_members_have_a_whole_session_to_be_heard() -> None:
    world = World()
    leader, _ = world.stable(2)
    world.advance(9_000)
    world.start(world.log)
    world.advance(9_999)
    assert world.heartbeat(leader, 1) == ErrorCode.NONE
    world.advance(1)
    assert list(world.group().members) == [leader]
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_groups_do_not_touch_each_other() -> None:
    """R7."""
    world = World()
    one, other = world.stable(2, group="one"), world.stable(1, group="other")
    world.leave((one[0], None), group="one")
    assert world.heartbeat(other[0], 1, group="other") == ErrorCode.NONE


def test_a_group_of_500_members_takes_one_generation() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=0))
    ids = [world.new_id() for _ in range(500)]
    tokens = [world.ask_join(one) for one in ids]
    world.advance(0)
    assert {world.joined(token).generation_id for token in tokens} == {1}
    syncs = [world.ask_sync(one, 1) for one in ids[1:]]
    world.ask_sync(ids[0], 1, {one: one.encode() for one in ids})
    assert [world.assignment(token) for token in syncs] == [one.encode() for one in ids[1:]]


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00\xff\xff\xff\xff"]
)
def test_a_subscription_that_makes_no_sense_is_of_unknown_topics(metadata: bytes) -> None:
    world = World()
    token = world.ask_join(version=1, protocols={"range": metadata})
    world.advance(3_000)
    assert world.joined(token).members[0].metadata == metadata
    assert world.group().subscribed_topics is None
    assert world.group().is_subscribed("anything")
