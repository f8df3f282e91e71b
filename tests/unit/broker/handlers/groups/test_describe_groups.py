"""DescribeGroups, ListGroups and DeleteGroups over the wire, in every version."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from support.broker.single_broker import SingleBroker
from support.wire.group_requests import (
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    commit,
    commit_request,
    describe,
    stable,
    versions,
)


@pytest.mark.parametrize("version", versions(15))
def test_groups_are_described_and_unknown_ones_said_to_be_dead(ready: SingleBroker, version: int) -> None:
    joined = stable(ready)
    found, unknown = describe(ready, version, GROUP, "nobody")
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/client:1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (SUBSCRIPTION, b"part")
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (unknown.error_code, unknown.group_state) == (code, "Dead")


@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed(ready: SingleBroker, version: int) -> None:
    stable(ready)
    commit(ready, 9, commit_request({TOPIC: {0: 1}}, group="simple"))
    answer = ready.ask(ListGroupsRequest(), ListGroupsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    found = {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in answer.groups}
    assert found == {
        GROUP: ("consumer", "Stable" if version >= 4 else "", "classic" if version >= 5 else ""),
        "simple": ("", "Empty" if version >= 4 else "", "classic" if version >= 5 else ""),
    }


def test_groups_are_listed_by_state_and_by_type(ready: SingleBroker) -> None:
    stable(ready)
    commit(ready, 9, commit_request({TOPIC: {0: 1}}, group="simple"))

    def listed(**filters: list[str]) -> list[str]:
        answer = ready.ask(ListGroupsRequest(**filters), ListGroupsResponse, 5)
        return [one.group_id for one in answer.groups]

    assert listed(states_filter=["empty"]) == ["simple"]
    assert listed(types_filter=["consumer"]) == []
    assert sorted(listed(types_filter=["Classic"], states_filter=["Stable", "Empty"])) == [GROUP, "simple"]


@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted_one_by_one_but_not_those_with_members(ready: SingleBroker, version: int) -> None:
    stable(ready)
    commit(ready, 9, commit_request({TOPIC: {0: 1}}, group="simple"))
    names = [GROUP, "simple", "nobody", "simple"]
    answer = ready.ask(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse, version)
    assert {one.group_id: one.error_code for one in answer.results} == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
