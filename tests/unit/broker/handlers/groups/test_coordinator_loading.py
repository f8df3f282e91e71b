"""Group requests before there is a coordinator, and while it loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol import messages
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from flintmq.testing.simulation import SimulatedDisk
from support.broker.single_broker import SEED, SingleBroker
from support.wire.group_requests import (
    GROUP,
    TOPIC,
    commit,
    commit_request,
    fetch_request,
    fetched,
    find,
    join_request,
)


def requests_of_all_kinds() -> list[tuple[Message, int]]:
    return [
        (join_request(), 9),
        (SyncGroupRequest(group_id=GROUP, protocol_type="consumer", protocol_name="range"), 5),
        (HeartbeatRequest(group_id=GROUP), 4),
        (LeaveGroupRequest(group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id="m")]), 5),
        (commit_request({TOPIC: {0: 1}}), 9),
        (fetch_request(7, {TOPIC: [0]}), 7),
        (fetch_request(9, {TOPIC: [0]}), 9),
        (DescribeGroupsRequest(groups=[GROUP]), 6),
        (DeleteGroupsRequest(groups_names=[GROUP]), 2),
        (OffsetDeleteRequest(group_id=GROUP), 0),
    ]


def codes_in(message: Message) -> set[int]:
    """All error codes of an answer, wherever they stand, but NONE."""
    found: set[int] = set()

    def look(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                look(one)
        elif hasattr(value, "error_code"):
            found.add(value.error_code)
        for name in ("topics", "partitions", "groups", "results"):
            inner = getattr(value, name, None)
            if isinstance(inner, list):
                look(inner)

    look(message)
    return found - {ErrorCode.NONE}


@pytest.mark.parametrize(
    ("message", "version"), requests_of_all_kinds(), ids=lambda value: type(value).__name__
)
def test_before_the_topic_exists_the_coordinator_is_not_available(
    broker: SingleBroker, message: Message, version: int
) -> None:
    broker.create(TOPIC)
    answer = broker.ask(message, messages.response_of(message.api_key), version)
    assert codes_in(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.fixture
def restarted(broker: SingleBroker, start_broker: Callable[..., SingleBroker]) -> SingleBroker:
    """A broker that has begun to load what another one left behind."""
    before = SingleBroker(broker.loop, {}, SimulatedDisk(seed=SEED))
    before.create(TOPIC)
    find(before)
    commit(before, 9, commit_request({TOPIC: {0: 5}}))
    before.close()
    return start_broker(disk=before.disk)


@pytest.mark.parametrize(
    ("message", "version"), requests_of_all_kinds(), ids=lambda value: type(value).__name__
)
def test_while_groups_are_loaded_clients_are_told_to_wait(
    restarted: SingleBroker, message: Message, version: int
) -> None:
    answer = restarted.ask(message, messages.response_of(message.api_key), version)
    assert codes_in(answer) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    find(restarted)
    committed = restarted.ask(fetch_request(9, None), OffsetFetchResponse, 9)
    assert fetched(committed, 9) == {GROUP: {(TOPIC, 0): (5, 0)}}


def test_groups_that_are_being_loaded_are_missing_from_the_list_and_that_is_said(
    restarted: SingleBroker,
) -> None:
    answer = restarted.ask(ListGroupsRequest(), ListGroupsResponse, 5)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_only_groups_have_a_coordinator(broker: SingleBroker) -> None:
    assert find(broker, key_type=2).error_code == ErrorCode.INVALID_REQUEST
