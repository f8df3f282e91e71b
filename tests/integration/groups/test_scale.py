"""Many groups, and a group of many members, keep nobody waiting (issue: 1,000 groups, one of 500 members).

Raw connections, so that the figures are the broker's. A healthy client in another process reads and writes meanwhile,
and must not wait for a second (`support.broker.hostile`). The heartbeats of a group beside them are all answered in
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from support.broker.broker_process import BrokerProcess, StartBroker
from support.broker.hostile import needs_proc, watched
from support.wire.wire import Wire

pytestmark = [pytest.mark.xdist_group("hostile"), needs_proc]

GROUPS, MEMBERS = 1000, 500
AT_ONCE = 50
HEARTBEAT_S_MAX = 2.0
"""By the clock, on a machine that has other things to do too."""
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 3, 3, 3
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"


class Member:
    def __init__(self, wire: Wire, group: str) -> None:
        self.wire = wire
        self.group = group
        self.id = ""
        self.generation = -1
        self.peers: list[str] = []
        """All members, where this one leads."""

    def send_join(self) -> None:
        self.wire.send(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            ),
            JOIN_VERSION,
        )

    def joined(self) -> None:
        _, answer = self.wire.receive()
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE, answer.error_code
        self.id, self.generation = answer.member_id, answer.generation_id
        self.peers = [one.member_id for one in answer.members]

    def send_sync(self) -> None:
        self.wire.send(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=peer, assignment=peer.encode())
                    for peer in self.peers
                ],
            ),
            SYNC_VERSION,
        )

    def synced(self) -> None:
        _, answer = self.wire.receive()
        assert isinstance(answer, SyncGroupResponse)
        assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, self.id.encode())

    def send_heartbeat(self) -> None:
        self.wire.send(
            HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id),
            HEARTBEAT_VERSION,
        )

    def heartbeat(self) -> int:
        _, answer = self.wire.receive()
        assert isinstance(answer, HeartbeatResponse)
        return answer.error_code


class Bystander(Member):
    """A member of a group of its own, whose heartbeats are timed."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, "bystander")
        self.send_join()
        self.joined()
        self.send_sync()
        self.synced()
        self.worst_s = 0.0

    def beat(self) -> None:
        began = time.monotonic()
        self.send_heartbeat()
        assert self.heartbeat() == ErrorCode.NONE
        self.worst_s = max(self.worst_s, time.monotonic() - began)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ready(broker: BrokerProcess, ends: ExitStack) -> Bystander:
    """Once the coordinator serves."""
    wire = ends.enter_context(Wire(broker.address))
    found = wire.ask(FindCoordinatorRequest(key="bystander"), 3)
    assert isinstance(found, FindCoordinatorResponse)
    assert found.error_code == ErrorCode.NONE
    return Bystander(wire)


@pytest.mark.timeout(120)
def test_a_thousand_groups_of_one_member_keep_nobody_waiting(
    start_broker: StartBroker, ends: ExitStack
) -> None:
    broker = start_broker()
    bystander = ready(broker, ends)
    wire = ends.enter_context(Wire(broker.address))
    members = [Member(wire, f"group-{number}") for number in range(GROUPS)]
    with watched(broker):
        for start in range(0, GROUPS, AT_ONCE):
            some = members[start : start + AT_ONCE]
            for send, receive in ((Member.send_join, Member.joined), (Member.send_sync, Member.synced)):
                for member in some:
                    send(member)
                bystander.beat()
                for member in some:
                    receive(member)
        for _ in range(3):
            for start in range(0, GROUPS, AT_ONCE):
                some = members[start : start + AT_ONCE]
                for member in some:
                    member.send_heartbeat()
                bystander.beat()
                assert {member.heartbeat() for member in some} == {ErrorCode.NONE}
    print(f"worst heartbeat beside {GROUPS} groups: {bystander.worst_s * 1000:.0f} ms")
    assert bystander.worst_s < HEARTBEAT_S_MAX


@pytest.mark.timeout(120)
def test_a_group_of_five_hundred_members_rebalances_and_keeps_nobody_waiting(
    start_broker: StartBroker, ends: ExitStack
) -> None:
    broker = start_broker("--set", "group.initial.rebalance.delay.ms=1000")
    bystander = ready(broker, ends)
    members = [Member(ends.enter_context(Wire(broker.address)), "large") for _ in range(MEMBERS)]
    with watched(broker):
        generation = 0
        for _ in range(2):
            # First all of them at once; then the group, which they form by now, shares anew because one of them asks.
            for member in members:
                member.send_join()
            bystander.beat()
            for member in members:
                member.joined()
            assert {member.generation for member in members} == {members[0].generation}
            assert members[0].generation > generation
            generation = members[0].generation
            assert sorted(len(member.peers) for member in members)[-2:] == [0, MEMBERS]
            for member in members:
                member.send_sync()
            bystander.beat()
            for member in members:
                member.synced()
            for member in members:
                member.send_heartbeat()
            bystander.beat()
            assert {member.heartbeat() for member in members} == {ErrorCode.NONE}
            # The leader asks first the next time: others with nothing new would just be told what they know.
            members.sort(key=lambda member: not member.peers)
    print(f"worst heartbeat beside {MEMBERS} members: {bystander.worst_s * 1000:.0f} ms")
    assert bystander.worst_s < HEARTBEAT_S_MAX
