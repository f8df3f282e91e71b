"""A broker that stops, or loses a client, while members wait in a rebalance (F4)."""

from __future__ import annotations

import time

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupResponse,
)
from support.broker.broker_process import BrokerProcess, StartBroker
from support.wire.wire import Wire

PATIENCE_S = 30.0


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """Whose groups wait for more members, for longer than any test."""
    return start_broker("--set", "group.initial.rebalance.delay.ms=600000")


def send_join(wire: Wire) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_200_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    wire.send(request, 3)


def wait_for_members(wire: Wire, count: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        answer = wire.ask(DescribeGroupsRequest(groups=["g"]), 5)
        assert isinstance(answer, DescribeGroupsResponse)
        if len(answer.groups[0].members) == count:
            return
    raise AssertionError(answer)


def test_members_that_wait_are_sent_elsewhere_when_the_broker_stops(broker: BrokerProcess) -> None:
    with Wire(broker.address) as member, Wire(broker.address) as other:
        other.ask(FindCoordinatorRequest(key="g"), 3)
        send_join(member)
        wait_for_members(other, 1)
        assert broker.stop() == 0
        _, answer = member.receive()
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_client_that_goes_while_it_waits_harms_nobody(broker: BrokerProcess) -> None:
    with Wire(broker.address) as other:
        other.ask(FindCoordinatorRequest(key="g"), 3)
        for count in (1, 2):
            with Wire(broker.address) as member:
                send_join(member)
                wait_for_members(other, count)
        # Both are members until their sessions end, and the group still answers.
        wait_for_members(other, 2)
        assert broker.stop() == 0
    assert "Traceback" not in broker.errors
