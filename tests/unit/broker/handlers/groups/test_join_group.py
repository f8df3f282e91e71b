"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version (F4, Z2)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import encode
from flintmq.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from support.broker.single_broker import NODE_ID, FakeConnection, SingleBroker
from support.wire.group_requests import (
    GROUP,
    OLD_JOIN,
    SUBSCRIPTION,
    describe,
    find,
    join,
    join_request,
    stable,
    sync_request,
    versions,
)


@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_of_a_group_is_this_broker(broker: SingleBroker, version: int) -> None:
    if version < 4:
        found: Any = find(broker, version)
    else:
        answer = find(broker, version, key="", coordinator_keys=["g", "h"])
        assert [one.key for one in answer.coordinators] == ["g", "h"]
        found = answer.coordinators[1]
    assert (found.error_code, found.node_id, found.host, found.port) == (0, NODE_ID, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", versions(11))
def test_a_lone_member_joins_leads_and_gets_its_assignment(ready: SingleBroker, version: int) -> None:
    joined = join(ready, version)
    assert (joined.generation_id, joined.leader) == (1, joined.member_id)
    assert [bytes(one.metadata) for one in joined.members] == [SUBSCRIPTION]
    sync_version = min(version, 5)
    synced = ready.ask(sync_request(joined, sync_version), SyncGroupResponse, sync_version)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"part")


@pytest.mark.parametrize("version", versions(14))
def test_assignments_are_handed_out(ready: SingleBroker, version: int) -> None:
    synced = ready.ask(sync_request(join(ready), version), SyncGroupResponse, version)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"part")
    assert synced.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", versions(12))
def test_heartbeats_of_members_are_taken_and_those_of_strangers_refused(
    ready: SingleBroker, version: int
) -> None:
    joined = stable(ready)
    for member_id, code in ((joined.member_id, ErrorCode.NONE), ("stranger", ErrorCode.UNKNOWN_MEMBER_ID)):
        request = HeartbeatRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=member_id)
        assert ready.ask(request, HeartbeatResponse, version).error_code == code


@pytest.mark.parametrize("version", versions(13))
def test_a_member_leaves_and_its_group_is_empty(ready: SingleBroker, version: int) -> None:
    member_id = stable(ready).member_id
    request = LeaveGroupRequest(group_id=GROUP)
    if version < 3:
        request.member_id = member_id
    else:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id=one) for one in (member_id, "stranger")]
    answer = ready.ask(request, LeaveGroupResponse, version)
    assert answer.error_code == ErrorCode.NONE
    codes = [one.error_code for one in answer.members]
    assert codes == ([] if version < 3 else [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
    assert describe(ready, 6, GROUP)[0].group_state == "Empty"


# ---- bad input


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0", b"\xff\xff", b"\0\0\x7f\xff\xff\xff", b"\0\3\0\0\0\1\0\1", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_a_subscription_that_makes_no_sense_is_carried_as_it_is(ready: SingleBroker, metadata: bytes) -> None:
    joined = join(ready, metadata=metadata)
    assert [bytes(one.metadata) for one in joined.members] == [metadata]
    synced = ready.ask(sync_request(joined, 5, assignment=b"\xff"), SyncGroupResponse, 5)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"\xff")
    assert describe(ready, 6, GROUP)[0].group_state == "Stable"


# ---- joins that wait


class Waiting:
    """A join on a connection of its own, which waits in the group."""

    def __init__(self, broker: SingleBroker, message: JoinGroupRequest, version: int = OLD_JOIN) -> None:
        self.loop = broker.loop

        async def send() -> tuple[FakeConnection, Request | None]:
            connection = FakeConnection()
            header = struct.pack(">hhih4s", message.api_key, version, 1, 4, b"test")
            frame = memoryview(header + encode(message, version))
            return connection, Dispatcher(broker.services).dispatch(connection, frame)

        self.connection, self.request = broker.loop.run_until_complete(send())

    @property
    def is_answered(self) -> bool:
        assert self.request is not None
        return self.request.response is not None

    @property
    def polls(self) -> Any:
        assert self.request is not None
        return self.request.delayed


@pytest.fixture
def waiting(start_broker: Callable[..., SingleBroker]) -> tuple[SingleBroker, Waiting]:
    broker = start_broker({"group.initial.rebalance.delay.ms": "3000"})
    find(broker)
    return broker, Waiting(broker, join_request())


def test_a_join_is_answered_when_the_group_has_waited_long_enough(
    waiting: tuple[SingleBroker, Waiting],
) -> None:
    broker, parked = waiting
    assert not parked.is_answered
    broker.loop.run_until_complete(asyncio.sleep(3.1))
    assert parked.is_answered


def test_a_join_whose_connection_is_gone_is_answered_to_nobody(waiting: tuple[SingleBroker, Waiting]) -> None:
    broker, parked = waiting
    parked.polls.cancel()
    broker.loop.run_until_complete(asyncio.sleep(3.1))
    assert not parked.is_answered
    assert not parked.connection.answer.done()
    # Its member stays until its session ends: the connection is not the member.
    assert len(describe(broker, 6, GROUP)[0].members) == 1


def test_a_broker_that_stops_sends_waiting_members_elsewhere(waiting: tuple[SingleBroker, Waiting]) -> None:
    broker, parked = waiting
    parked.polls.expire()
    assert parked.is_answered
    assert parked.request is not None
    assert parked.request.response is not None
    answer = b"".join(
        bytes(buffer) for buffer in parked.request.response if isinstance(buffer, bytes | bytearray)
    )
    # Size, correlation id, throttle time (from version 2 on), error code.
    assert int.from_bytes(answer[12:14], "big") == ErrorCode.NOT_COORDINATOR
    broker.loop.run_until_complete(asyncio.sleep(3.1))
