"""Members join: ids, protocols, limits, and the time that a first rebalance takes (Z2, F4)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.groups import GroupClient, GroupSettings
from flintmq.coordinator.groups.group import GroupState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import JoinGroupResponse
from unit.coordinator.groups.world import World, subscription


def test_a_member_without_id_is_given_one_and_has_to_come_back_with_it() -> None:
    """KIP-394."""
    world = World()
    reply = world.reply(world.ask_join(client=GroupClient("app", "/h")), JoinGroupResponse)
    assert (reply.error_code, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "app-uuid1")
    assert world.group().state is GroupState.EMPTY
    token = world.ask_join(reply.member_id)
    assert world.waits(token)
    world.advance(3_000)
    assert world.joined(token).member_id == "app-uuid1"


@pytest.mark.parametrize("version", range(4))
def test_old_versions_join_in_one_step(version: int) -> None:
    world = World()
    token = world.ask_join(version=version)
    world.advance(3_000)
    reply = world.joined(token)
    assert (reply.leader, reply.generation_id, reply.protocol_name) == (reply.member_id, 1, "range")
    assert [member.member_id for member in reply.members] == [reply.member_id]


def test_an_id_that_does_not_come_back_is_forgotten_after_its_session() -> None:
    world = World()
    gone = world.new_id()
    token = world.ask_join(world.new_id())
    world.advance(9_999)
    assert world.waits(token) is False
    assert gone in world.group().pending_ids
    world.advance(1)
    assert gone not in world.group().pending_ids
    assert world.join_code(world.ask_join(gone)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given_out() -> None:
    world = World()
    leader, follower = world.stable(2)
    pending = world.new_id()
    tokens = [world.ask_join(leader), world.ask_join(follower)]
    assert all(map(world.waits, tokens))
    tokens.append(world.ask_join(pending))
    assert {world.joined(token).generation_id for token in tokens} == {2}


def test_a_pending_id_that_expires_lets_the_others_go_on() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.new_id()
    token = world.ask_join(leader)
    assert world.waits(token)
    world.advance(10_000)
    assert world.joined(token).generation_id == 2


def test_the_first_rebalance_is_put_off_while_members_keep_coming() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=1_000))
    first = world.ask_join(version=1, rebalance_ms=3_500)
    for _ in range(5):
        world.advance(600)
        world.ask_join(version=1, rebalance_ms=3_500)
    assert world.waits(first)
    world.advance(500)
    assert len(world.joined(first).members) == 6


def test_the_first_rebalance_is_not_put_off_if_nobody_comes() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=1_000))
    first = world.ask_join(version=1)
    world.advance(999)
    assert world.waits(first)
    world.advance(1)
    assert world.joined(first).generation_id == 1


def test_without_initial_delay_the_first_member_is_served_at_once() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=0))
    token = world.ask_join(version=1)
    world.advance(0)
    assert world.joined(token).generation_id == 1


def test_only_the_leader_learns_who_the_members_are() -> None:
    world = World()
    ids = [world.new_id() for _ in range(3)]
    tokens = [world.ask_join(one, protocols={"range": subscription(one)}) for one in ids]
    world.advance(6_000)
    replies = [world.joined(token) for token in tokens]
    assert {reply.leader for reply in replies} == {ids[0]}
    assert [(one.member_id, one.metadata) for one in replies[0].members] == [
        (one, subscription(one)) for one in ids
    ]
    assert [reply.members for reply in replies[1:]] == [[], []]


def test_members_vote_among_the_protocols_they_all_know() -> None:
    world = World()
    wishes = [("a", "b", "c"), ("c", "b"), ("b", "c", "a")]
    tokens = [world.ask_join(version=1, protocols=dict.fromkeys(names, b"")) for names in wishes]
    world.advance(6_000)
    assert [world.joined(token).protocol_name for token in tokens] == ["b"] * 3


def test_a_member_that_has_no_protocol_in_common_is_refused() -> None:
    world = World()
    world.stable(1)
    tokens = [
        world.ask_join(protocol_type="connect"),
        world.ask_join(protocols={"sticky": b""}),
        world.ask_join(protocols={}),
    ]
    assert [world.join_code(token) for token in tokens] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 3


def test_a_group_is_not_made_for_a_member_without_protocol() -> None:
    world = World()
    tokens = [world.ask_join(protocol_type=""), world.ask_join(protocols={})]
    assert [world.join_code(token) for token in tokens] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2
    assert not world.groups


def test_a_protocol_named_twice_counts_once() -> None:
    world = World()
    twice = world.ask_join(version=1, protocols=[("a", b"1"), ("a", b"2")])
    once = world.ask_join(version=1, protocols=[("a", b"3")])
    world.advance(6_000)
    assert [one.metadata for one in world.joined(twice).members] == [b"1", b"3"]
    assert world.joined(once).protocol_name == "a"


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_outside_of_the_limits_is_refused(session_ms: int) -> None:
    world = World()
    assert world.join_code(world.ask_join(session_ms=session_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name() -> None:
    world = World()
    assert world.join_code(world.ask_join(group="")) == ErrorCode.INVALID_GROUP_ID


def test_a_member_of_a_group_that_is_not_there_is_unknown() -> None:
    world = World()
    assert world.join_code(world.ask_join("somebody")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.groups


@pytest.mark.parametrize("version", [6, 7])
def test_a_refusal_has_a_protocol_name_only_where_it_may_not_be_null(version: int) -> None:
    world = World()
    reply = world.reply(world.ask_join("somebody", version=version), JoinGroupResponse)
    assert reply.protocol_name == (None if version >= 7 else "")


def test_a_full_group_takes_nobody_else() -> None:
    world = World(GroupSettings(group_max_size=2))
    leader, _ = world.stable(2)
    assert world.join_code(world.ask_join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.ask_join(world.stable(1, group="other")[0], group="other")).generation_id == 2
    world.leave((leader, None))
    world.new_id()


def test_in_a_rebalance_those_who_have_joined_fill_the_group() -> None:
    world = World(GroupSettings(group_max_size=2))
    tokens = [world.ask_join(version=1) for _ in range(3)]
    assert world.join_code(tokens[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.advance(6_000)
    assert len(world.joined(tokens[0]).members) == 2


def test_a_group_over_a_lowered_limit_loses_those_who_rejoin_last() -> None:
    world = World()
    ids = world.stable(3)
    world.settings = GroupSettings(group_max_size=2)
    world.start(world.log)
    assert world.group().state is GroupState.PREPARING
    tokens = [world.ask_join(one) for one in ids]
    assert world.join_code(tokens[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(world.joined(tokens[0]).members) == 2


def test_a_new_group_is_recorded_before_anyone_is_told() -> None:
    world = World()
    world.ask_join(version=1)
    rebuilt = World(log=world.log)
    assert (rebuilt.group().state, rebuilt.group().generation) == (GroupState.EMPTY, 0)


def test_a_new_group_that_cannot_be_recorded_is_not_there() -> None:
    world = World()
    world.refuse_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for version in (1, 9):
        assert world.join_code(world.ask_join(version=version)) == ErrorCode.NOT_COORDINATOR
    assert (dict(world.groups), world.timers, world.log) == ({}, {}, [])


def test_a_new_member_that_is_kept_waiting_for_five_minutes_is_dropped() -> None:
    world = World(GroupSettings(group_max_session_timeout_ms=3_600_000))
    leader = world.stable(1, session_ms=3_600_000, rebalance_ms=3_600_000)[0]
    token = world.ask_join(version=1)
    world.advance(5 * 60_000 - 1)
    assert world.waits(token)
    world.advance(1)
    assert world.join_code(token) == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [leader]


def test_a_join_that_is_sent_again_takes_the_place_of_the_first() -> None:
    world = World()
    leader, follower = world.stable(2)
    first = world.ask_join(leader)
    second = world.ask_join(leader)
    assert world.join_code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    world.ask_join(follower)
    assert world.joined(second).generation_id == 2


def test_the_first_version_has_one_time_out_for_both() -> None:
    world = World()
    world.ask_join(version=0, session_ms=7_000, rebalance_ms=-1)
    assert world.group().rebalance_timeout_ms == 7_000
