"""The group APIs over the wire, in every version, and what goes wrong (F4, Z2, Z7): both ways as bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from flintmq.broker.apis import APIS
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol import messages
from flintmq.protocol.codec import encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from flintmq.testing.simulation import SimulatedDisk
from support.broker.single_broker import NODE_ID, SEED, FakeConnection, SingleBroker

GROUP = "g"
TOPIC = "t"
UNKNOWN_ID = bytes(range(16))
OLD_JOIN = 3
"""The last version in which a member need not come back with an id (KIP-394)."""
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"

M = TypeVar("M", bound=Message)


@pytest.fixture
def ready(broker: SingleBroker) -> SingleBroker:
    """With a topic, and the topic that groups live in, loaded."""
    broker.create(TOPIC, 2)
    find(broker)
    return broker


def find(broker: SingleBroker, version: int = 3, **fields: Any) -> FindCoordinatorResponse:
    found = broker.ask(FindCoordinatorRequest(**{"key": GROUP, **fields}), FindCoordinatorResponse, version)
    broker.loop.run_until_complete(broker.groups.loaded())
    return found


def join_request(member_id: str = "", group: str = GROUP, metadata: bytes = SUBSCRIPTION) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(broker: SingleBroker, version: int = 9, **fields: Any) -> JoinGroupResponse:
    """As clients do: once more with the id they are given."""
    answer = broker.ask(join_request(**fields), JoinGroupResponse, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = broker.ask(join_request(answer.member_id, **fields), JoinGroupResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return answer


def sync_request(joined: JoinGroupResponse, version: int, assignment: bytes = b"part") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        ],
    )


def stable(broker: SingleBroker) -> JoinGroupResponse:
    """A group of one."""
    joined = join(broker)
    assert broker.ask(sync_request(joined, 5), SyncGroupResponse, 5).error_code == ErrorCode.NONE
    return joined


def commit_request(
    topics: dict[str | bytes, dict[int, int]],
    *,
    group: str = GROUP,
    member_id: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    named = []
    for topic, offsets in topics.items():
        one = OffsetCommitRequest.OffsetCommitRequestTopic(
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata="m"
                )
                for index, offset in offsets.items()
            ]
        )
        if isinstance(topic, bytes):
            one.topic_id = topic
        else:
            one.name = topic
        named.append(one)
    return OffsetCommitRequest(
        group_id=group, member_id=member_id, generation_id_or_member_epoch=generation, topics=named
    )


def commit(broker: SingleBroker, version: int, request: OffsetCommitRequest) -> dict[Any, int]:
    """Error codes by topic, as it was named, and partition."""
    answer = broker.ask(request, OffsetCommitResponse, version)
    return {
        (topic.topic_id if version >= 10 else topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }


def fetched(answer: OffsetFetchResponse, version: int) -> dict[str, dict[Any, tuple[int, int]]]:
    """By group, then by topic as it was named and partition: offset and error code."""
    if version < 8:
        return {
            GROUP: {
                (topic.name, one.partition_index): (one.committed_offset, one.error_code)
                for topic in answer.topics
                for one in topic.partitions
            }
        }
    return {
        group.group_id: {
            (topic.topic_id if version >= 10 else topic.name, one.partition_index): (
                one.committed_offset,
                one.error_code,
            )
            for topic in group.topics
            for one in topic.partitions
        }
        for group in answer.groups
    }


def fetch_request(
    version: int, topics: dict[str | bytes, list[int]] | None, groups: tuple[str, ...] = (GROUP,)
) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=groups[0],
            topics=None
            if topics is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=str(name), partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
    named = None
    if topics is not None:
        named = []
        for topic, indexes in topics.items():
            one = OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=indexes)
            if isinstance(topic, bytes):
                one.topic_id = topic
            else:
                one.name = topic
            named.append(one)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=named) for group in groups]
    )


# ---- every version


def versions(key: int) -> range:
    lowest, highest = next(api.versions for api in APIS if api.key == key)
    return range(lowest, highest + 1)


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


def describe(broker: SingleBroker, version: int, *groups: str) -> list[DescribeGroupsResponse.DescribedGroup]:
    return broker.ask(DescribeGroupsRequest(groups=list(groups)), DescribeGroupsResponse, version).groups


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


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_and_partitions_that_are_not_there_refused_alone(
    ready: SingleBroker, version: int
) -> None:
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    other: str | bytes = UNKNOWN_ID if version >= 10 else "nowhere"
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = commit(ready, version, commit_request({topic: {0: 5, 7: 1}, other: {0: 3}}))
    assert codes == {
        (topic, 0): ErrorCode.NONE,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): unknown,
    }
    answer = ready.ask(fetch_request(9, None), OffsetFetchResponse, 9)
    assert fetched(answer, 9) == {GROUP: {(TOPIC, 0): (5, 0)}}


@pytest.mark.parametrize("version", versions(9))
def test_committed_offsets_are_fetched(ready: SingleBroker, version: int) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    asked = fetch_request(version, {topic: [1, 4]})
    answer = ready.ask(asked, OffsetFetchResponse, version)
    assert fetched(answer, version) == {GROUP: {(topic, 1): (6, 0), (topic, 4): (-1, 0)}}


@pytest.mark.parametrize("version", [version for version in versions(9) if version >= 2])
def test_all_offsets_of_a_group_are_fetched_where_no_topic_is_named(
    ready: SingleBroker, version: int
) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    answer = ready.ask(fetch_request(version, None), OffsetFetchResponse, version)
    assert fetched(answer, version) == {GROUP: {(topic, 0): (5, 0), (topic, 1): (6, 0)}}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_are_asked_at_once(ready: SingleBroker, version: int) -> None:
    groups = ("a", "b", "nobody")
    commit(ready, 9, commit_request({TOPIC: {0: 1}}, group="a"))
    commit(ready, 9, commit_request({TOPIC: {1: 2}}, group="b"))
    topic: str | bytes = ready.topic_id(TOPIC) if version >= 10 else TOPIC
    answer = ready.ask(fetch_request(version, None, groups), OffsetFetchResponse, version)
    assert fetched(answer, version) == {"a": {(topic, 0): (1, 0)}, "b": {(topic, 1): (2, 0)}, "nobody": {}}
    assert [group.group_id for group in answer.groups] == list(groups)


def test_a_topic_id_that_is_not_known_is_refused_beside_one_that_is(ready: SingleBroker) -> None:
    known = ready.topic_id(TOPIC)
    commit(ready, 10, commit_request({known: {0: 5}}))
    answer = ready.ask(fetch_request(10, {UNKNOWN_ID: [0], known: [0]}), OffsetFetchResponse, 10)
    assert fetched(answer, 10) == {
        GROUP: {(known, 0): (5, 0), (UNKNOWN_ID, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID)}
    }


def test_offsets_are_deleted_one_by_one(ready: SingleBroker) -> None:
    commit(ready, 9, commit_request({TOPIC: {0: 5, 1: 6}}))
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in (TOPIC, "nowhere")
        ],
    )
    answer = ready.ask(request, OffsetDeleteResponse, 0)
    assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [
        [ErrorCode.NONE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    left = ready.ask(fetch_request(9, None), OffsetFetchResponse, 9)
    assert fetched(left, 9) == {GROUP: {(TOPIC, 1): (6, 0)}}


# ---- before there is a coordinator, and while it loads


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
