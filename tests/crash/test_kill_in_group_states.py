"""`kill -9` of the broker in every state of a consumer group (Z2, Z7, R7; KIP-345, KIP-394).

Members carry on, or join again where their generation was not complete; committed offsets are kept in every state.
Whoever belongs to the past is told so: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from support.broker.broker_process import BrokerProcess
from support.wire.transactions import LATER, WireProducer, committed_offset
from support.wire.wire import Wire

TOPIC = "t"
NONE = ErrorCode.NONE
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION, COMMIT_VERSION = 9, 5, 4, 5, 9
FIND_VERSION, DESCRIBE_VERSION, DELETE_VERSION = 4, 5, 2
SETTINGS = (
    "flint.rest.port=-1",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = [word for one in SETTINGS for word in ("--set", one)]
    started = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings).start()
    with Wire(started.address) as wire:
        wire.create_topic(TOPIC)
    yield started
    started.close()


class Group:
    """A group of its own, and a connection for each who speaks about it."""

    def __init__(self, broker: BrokerProcess, ends: ExitStack) -> None:
        self.broker = broker
        self.id = f"g-{uuid4()}"
        self._ends = ends
        self._members: list[Member] = []
        self.wire = self._connect()
        self.wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.id]), FIND_VERSION)

    def _connect(self) -> Wire:
        return self._ends.enter_context(Wire(self.broker.address))

    def member(self, instance: str | None = None) -> Member:
        made = Member(self._connect(), self.id, instance)
        self._members.append(made)
        return made

    def kill(self) -> None:
        """The broker; everybody is connected to the new one afterwards, and knows nothing of it."""
        self.broker.kill()
        self.broker.start()
        self.wire = self._connect()
        for member in self._members:
            member.wire = self._connect()

    @property
    def state(self) -> str:
        while True:
            answer = self.wire.ask(DescribeGroupsRequest(groups=[self.id]), DESCRIBE_VERSION)
            assert isinstance(answer, DescribeGroupsResponse)
            (group,) = answer.groups
            if group.error_code not in LATER:
                assert group.error_code == NONE, group.error_code
                return group.group_state

    def wait_for(self, state: str) -> None:
        while self.state != state:
            pass

    @property
    def offset(self) -> int:
        return committed_offset(self.wire, self.id, TOPIC)

    def delete(self) -> ErrorCode:
        answer = self.wire.ask(DeleteGroupsRequest(groups_names=[self.id]), DELETE_VERSION)
        assert isinstance(answer, DeleteGroupsResponse)
        return ErrorCode(answer.results[0].error_code)


class Member:
    def __init__(self, wire: Wire, group: str, instance: str | None) -> None:
        self.wire = wire
        self.group = group
        self.instance = instance
        self.id, self.generation = "", -1
        self.peers: list[str] = []

    def send_join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
        )
        self.wire.send(request, JOIN_VERSION)

    def ask_to_join(self) -> None:
        """As one that nobody knows. Who has no name is given an id first, and has to join with it."""
        self.id = ""
        self.send_join()
        if self.instance is None:
            answer = self._receive()
            assert isinstance(answer, JoinGroupResponse)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.id = answer.member_id
            self.send_join()

    def joined(self) -> ErrorCode:
        """The answer to a join."""
        answer = self._receive()
        assert isinstance(answer, JoinGroupResponse)
        code = ErrorCode(answer.error_code)
        if code is NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
            self.peers = [one.member_id for one in answer.members]
        return code

    def join(self) -> ErrorCode:
        """As the one that it is, if it is one already."""
        if self.id:
            self.send_join()
        else:
            self.ask_to_join()
        return self.joined()

    def send_sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=peer, assignment=peer.encode())
                for peer in self.peers
            ],
        )
        self.wire.send(request, SYNC_VERSION)

    def synced(self) -> ErrorCode:
        answer = self._receive()
        assert isinstance(answer, SyncGroupResponse)
        if answer.error_code == NONE:
            assert bytes(answer.assignment) == self.id.encode()
        return ErrorCode(answer.error_code)

    def sync(self) -> ErrorCode:
        self.send_sync()
        return self.synced()

    def heartbeat(self) -> ErrorCode:
        while True:
            answer = self.wire.ask(
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.id,
                    group_instance_id=self.instance,
                ),
                HEARTBEAT_VERSION,
            )
            assert isinstance(answer, HeartbeatResponse)
            if answer.error_code not in LATER:
                return ErrorCode(answer.error_code)

    def commit(self, offset: int, *, generation: int | None = None) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        answer = self.wire.ask(request, COMMIT_VERSION)
        assert isinstance(answer, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def leave(self) -> ErrorCode:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        answer = self.wire.ask(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE_VERSION)
        assert isinstance(answer, LeaveGroupResponse)
        return ErrorCode(answer.members[0].error_code)

    def _receive(self) -> Message:
        return self.wire.receive()[1]


@pytest.fixture
def group(broker: BrokerProcess) -> Iterator[Group]:
    with ExitStack() as ends:
        yield Group(broker, ends)


def stable(member: Member) -> None:
    assert (member.join(), member.sync()) == (NONE, NONE)


def join_both(group: Group, member: Member, newcomer: Member) -> None:
    """`newcomer` asks to join, so that `member` has to join again; they have the same new generation then."""
    newcomer.ask_to_join()
    group.wait_for("PreparingRebalance")
    assert (member.join(), newcomer.joined()) == (NONE, NONE)
    assert member.generation == newcomer.generation


def sync_both(one: Member, other: Member) -> None:
    for member in (one, other):
        member.send_sync()
    assert (one.synced(), other.synced()) == (NONE, NONE)


# ---- the states


def test_an_empty_group_keeps_its_offsets(group: Group) -> None:
    member = group.member()
    stable(member)
    assert (member.commit(5), member.leave()) == (NONE, NONE)
    assert group.state == "Empty"
    group.kill()
    assert (group.state, group.offset) == ("Empty", 5)
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    successor = group.member()
    stable(successor)
    assert successor.generation > member.generation


def test_the_members_of_a_group_that_prepares_a_rebalance_carry_on(group: Group) -> None:
    first, second = group.member(), group.member()
    stable(first)
    assert first.commit(5) is NONE
    second.ask_to_join()
    group.wait_for("PreparingRebalance")
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    group.kill()
    # The rebalance had no result yet: the generation before it is the one that there is.
    assert (group.state, group.offset) == ("Stable", 5)
    assert (first.heartbeat(), first.commit(6)) == (NONE, NONE)
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    join_both(group, first, second)
    sync_both(first, second)
    assert (first.generation, group.state, group.offset) == (2, "Stable", 6)


def test_the_members_of_a_group_that_completes_a_rebalance_join_again(group: Group) -> None:
    first, second = group.member(), group.member()
    stable(first)
    assert first.commit(5) is NONE
    join_both(group, first, second)
    assert (first.generation, group.state) == (2, "CompletingRebalance")
    group.kill()
    # What the leader had not told yet is lost with the broker, and nobody had anything of it.
    assert group.offset == 5
    assert first.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert first.sync() is ErrorCode.ILLEGAL_GENERATION
    assert first.commit(9) is ErrorCode.ILLEGAL_GENERATION
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.join() is ErrorCode.UNKNOWN_MEMBER_ID
    join_both(group, first, second)
    sync_both(first, second)
    assert (first.commit(6), group.offset, group.state) == (NONE, 6, "Stable")


def test_the_members_of_a_stable_group_carry_on_and_those_of_the_past_do_not(group: Group) -> None:
    member, stranger = group.member(), group.member()
    stable(member)
    assert member.commit(5) is NONE
    group.kill()
    assert (member.heartbeat(), group.state, group.offset) == (NONE, "Stable", 5)
    assert member.commit(6) is NONE
    assert member.commit(9, generation=member.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    stranger.id, stranger.generation = "stranger", member.generation
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.offset == 6
    # A sync that is repeated is answered from what is kept.
    member.peers = []
    assert member.sync() is NONE
    group.kill()
    assert (member.heartbeat(), group.offset) == (NONE, 6)


def test_a_static_member_that_was_replaced_is_fenced_after_a_kill(group: Group) -> None:
    first = group.member("instance")
    stable(first)
    assert first.commit(5) is NONE
    second = group.member("instance")
    assert second.join() is NONE
    assert second.id != first.id
    group.kill()
    assert group.offset == 5
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(9) is ErrorCode.FENCED_INSTANCE_ID
    assert first.sync() is ErrorCode.FENCED_INSTANCE_ID
    assert first.join() is ErrorCode.FENCED_INSTANCE_ID
    assert (second.heartbeat(), second.commit(6), group.offset) == (NONE, NONE, 6)


def test_a_zombie_of_the_group_commits_nothing_in_a_transaction(group: Group) -> None:
    """KIP-447: generation, member and instance of an offset in a transaction are looked at, after a kill too."""
    member = group.member("instance")
    stable(member)
    group.kill()
    assert group.state == "Stable"
    producer = WireProducer(group.wire, group.id)
    assert producer.init() is NONE

    def commit(offset: int, generation: int, member_id: str) -> ErrorCode:
        return producer.commit_offset(group.id, TOPIC, offset, generation=generation, member_id=member_id)

    assert commit(9, member.generation - 1, member.id) is ErrorCode.ILLEGAL_GENERATION
    assert commit(9, member.generation, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(5, member.generation, member.id) is NONE
    assert producer.end(committed=True) is NONE
    assert group.offset == 5


def test_a_group_that_was_deleted_stays_deleted(group: Group) -> None:
    member = group.member()
    stable(member)
    assert (member.commit(5), member.leave(), group.delete()) == (NONE, NONE, NONE)
    group.kill()
    assert (group.state, group.offset) == ("Dead", -1)
    assert group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    member.id = ""
    stable(member)
    assert (member.commit(1), group.offset) == (NONE, 1)
