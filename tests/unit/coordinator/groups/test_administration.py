"""Groups are described, listed and deleted (Z2)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.runtime.machine import NOBODY
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from unit.coordinator.groups.world import World, subscription


def describe(world: World, *groups: str, version: int = 6) -> list[DescribeGroupsResponse.DescribedGroup]:
    token = world.token(version)
    world.perform(world.machine.describe_groups(token, groups, version))
    return world.reply(token, DescribeGroupsResponse).groups


def listing(world: World, *states: str, types: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
    token = world.token(5)
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    world.perform(world.machine.list_groups(token, request, 5))
    return [
        (one.group_id, one.protocol_type, one.group_state, one.group_type)
        for one in world.reply(token, ListGroupsResponse).groups
    ]


def delete(world: World, *groups: str) -> list[ErrorCode]:
    token = world.token(2)
    world.perform(world.machine.delete_groups(token, groups, 2))
    return [ErrorCode(one.error_code) for one in world.reply(token, DeleteGroupsResponse).results]


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_what_its_members_said_and_got(version: int) -> None:
    world = World()
    ids = world.stable(2)
    (group,) = describe(world, "g", version=version)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [(one.member_id, one.client_id, one.client_host) for one in group.members] == [
        (one, "c", "/127.0.0.1") for one in ids
    ]
    assert [(one.member_metadata, one.member_assignment) for one in group.members] == [
        (subscription("t"), one.encode()) for one in ids
    ]


def test_a_group_that_rebalances_is_described_without_what_its_members_said() -> None:
    world = World()
    leader, _ = world.stable(2)
    world.ask_join(leader)
    (group,) = describe(world, "g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in group.members] == [b"", b""]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, code: ErrorCode) -> None:
    (group,) = describe(World(), "g", version=version)
    assert (group.group_id, group.group_state, group.error_code) == ("g", "Dead", code)


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    world.stable(1)
    world.commit({("t", 0): 1}, group="simple")
    stable, simple = ("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
    assert listing(world) == [stable, simple]
    assert listing(world, "STABLE") == [stable]
    assert listing(world, " empty", "Dead") == [simple]
    assert listing(world, types=("Classic", "consumer")) == [stable, simple]
    assert listing(world, types=("consumer", "what?")) == []


@pytest.mark.parametrize("version", range(6))
def test_listing_has_words_in_every_version(version: int) -> None:
    world = World()
    world.commit({("t", 0): 1})
    token = world.token(version)
    world.perform(world.machine.list_groups(token, ListGroupsRequest(), version))
    assert len(world.reply(token, ListGroupsResponse).groups) == 1


def test_an_empty_group_is_deleted_with_all_its_offsets() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.commit({("t", 0): 1}, member_id=leader, generation=1)
    assert delete(world, "g", "other") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    world.leave((leader, None))
    world.commit_in_transaction(1, {("u", 0): 2})
    assert delete(world, "g") == [ErrorCode.NONE]
    world.end_transaction(1, committed=True)
    for machine in (world, World(log=world.log)):
        assert not machine.groups
        assert machine.fetch() == {}


def test_a_deletion_that_cannot_be_written_is_refused() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.refuse_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delete(world, "g", "other") == [ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND]
    assert "g" in world.groups


def test_a_timer_of_something_else_or_of_a_group_that_is_gone_does_nothing() -> None:
    world = World()
    world.new_id()
    delete(world, "g")
    assert world.timers
    world.advance(60_000)
    assert world.machine.expire("other", world.now_ms).responses == []
    assert world.machine.describe_groups(NOBODY, ["g"], 6).responses == []
