"""Sharing partitions, being a member, and groups from outside, against brokers that answer as told."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.client.admin.groups import committed_offsets, describe_group, list_groups
from flintmq.client.assignors import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from flintmq.client.cluster import ClusterClient
from flintmq.client.group_consumer import COMMIT_INTERVAL_S, GroupConsumer
from flintmq.client.group_membership import HEARTBEAT_INTERVAL_S, GroupMembership
from flintmq.errors import ErrorCode, ProtocolError, RequestError
from flintmq.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchRequest,
    FetchResponse,
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
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from flintmq.records.record import build_batch
from support.broker.scripted_broker import TOPIC_ID, ScriptedBroker, TestClock, metadata, scripted_client

# ---- who gets what


def test_a_range_gives_neighbours_and_the_first_members_the_rest() -> None:
    shares = assign_range({"b": ["t"], "a": ["t", "u"], "c": ["u"]}, {"t": 5, "u": 1})
    assert shares == {"a": {"t": [0, 1, 2], "u": [0]}, "b": {"t": [3, 4]}, "c": {}}


def test_round_robin_deals_past_those_who_do_not_read_the_topic() -> None:
    shares = assign_round_robin({"a": ["t"], "b": ["t", "u"]}, {"t": 3, "u": 2})
    assert shares == {"a": {"t": [0, 2]}, "b": {"t": [1], "u": [0, 1]}}


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_every_partition_has_one_reader_and_a_missing_topic_none(name: str) -> None:
    members = {f"m{n}": ["t", "gone"] for n in range(7)}
    shares = ASSIGNORS[name](members, {"t": 17})
    dealt = sorted(partition for share in shares.values() for partition in share.get("t", []))
    assert dealt == list(range(17))
    assert {len(share["t"]) for share in shares.values()} == {2, 3}
    assert not any("gone" in share for share in shares.values())


def test_subscriptions_and_assignments_survive_the_way_as_bytes() -> None:
    assert decode_subscription(encode_subscription(["a", "b"])) == ["a", "b"]
    assert decode_assignment(encode_assignment({"a": [0, 2], "b": []})) == {"a": [0, 2], "b": []}
    assert decode_assignment(b"") == {}


def test_later_versions_are_read_as_far_as_they_are_known() -> None:
    newer = b"\0\3" + encode_subscription(["a"])[2:] + b"\0\0\0\0" + b"\0\0\0\5"
    assert decode_subscription(newer) == ["a"]


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\5t"])
def test_bytes_that_make_no_sense_are_known_as_such(data: bytes) -> None:
    assert decode_subscription(data) is None
    assert decode_assignment(data) is None


# ---- a member


class Coordinator:
    """Answers as a group of one does; `codes` are put in front, by kind of request."""

    def __init__(self, **codes: list[ErrorCode]) -> None:
        self.codes = codes
        self.found = 0
        self.assigned = b""
        self.partitions = 3
        self.protocol = "range"
        self.clock = TestClock()
        self.broker = ScriptedBroker(
            {
                MetadataRequest: lambda request: metadata(self.partitions)(request),
                FindCoordinatorRequest: self._find,
                JoinGroupRequest: self._join,
                SyncGroupRequest: self._sync,
                HeartbeatRequest: lambda _: HeartbeatResponse(error_code=self._next("heartbeat")),
                LeaveGroupRequest: lambda _: LeaveGroupResponse(error_code=self._next("leave")),
                OffsetCommitRequest: self._commit,
            }
        )
        self.client: ClusterClient = scripted_client(self.broker, self.clock)
        self.member = GroupMembership(self.client, "g", ["t"])

    def _next(self, kind: str) -> ErrorCode:
        waiting = self.codes.get(kind)
        return waiting.pop(0) if waiting else ErrorCode.NONE

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        self.found += 1
        return FindCoordinatorResponse(error_code=self._next("find"), node_id=0, host="n0", port=9092)

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        code = self._next("join")
        if code or not request.member_id:
            return JoinGroupResponse(error_code=code or ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
        return JoinGroupResponse(
            generation_id=4,
            protocol_type="consumer",
            protocol_name=self.protocol,
            leader="m",
            member_id="m",
            members=[
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id="m", metadata=request.protocols[0].metadata
                )
            ],
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        self.assigned = bytes(request.assignments[0].assignment)
        return SyncGroupResponse(error_code=self._next("sync"), assignment=self.assigned)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        partition = OffsetCommitResponse.OffsetCommitResponsePartition(
            partition_index=0, error_code=self._next("commit")
        )
        topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[partition])
        return OffsetCommitResponse(topics=[topic])

    def sent(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.broker.requests if isinstance(request, kind)]


def test_a_member_comes_back_with_the_id_it_is_given_and_as_leader_shares_out_the_topic() -> None:
    coordinator = Coordinator()
    assert coordinator.member.join() == {"t": [0, 1, 2]}
    assert [one.member_id for one in coordinator.sent(JoinGroupRequest)] == ["", "m"]
    assert (coordinator.member.member_id, coordinator.member.generation) == ("m", 4)


@pytest.mark.parametrize("kind", ["find", "join", "sync", "heartbeat", "commit"])
def test_a_coordinator_that_moved_is_found_again(kind: str) -> None:
    coordinator = Coordinator(**{kind: [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]})
    coordinator.member.join()
    assert coordinator.member.heartbeat()
    assert coordinator.member.commit({("t", 0): 5})
    assert coordinator.found == 2


def test_a_member_that_was_forgotten_joins_as_a_new_one() -> None:
    coordinator = Coordinator(sync=[ErrorCode.UNKNOWN_MEMBER_ID])
    assert coordinator.member.join() == {"t": [0, 1, 2]}
    assert [one.member_id for one in coordinator.sent(JoinGroupRequest)] == ["", "m", "", "m"]


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_heartbeat_says_when_to_join_again(code: ErrorCode) -> None:
    coordinator = Coordinator(heartbeat=[code])
    coordinator.member.join()
    assert not coordinator.member.heartbeat()
    # Only one who is still known keeps its id.
    known = code is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.member.member_id == ("m" if known else "")


def test_heartbeats_are_due_in_time() -> None:
    coordinator = Coordinator()
    coordinator.member.join()
    assert not coordinator.member.is_due
    coordinator.clock.sleep(HEARTBEAT_INTERVAL_S)
    assert coordinator.member.is_due
    coordinator.member.heartbeat()
    assert not coordinator.member.is_due


def test_a_commit_that_comes_too_late_is_told() -> None:
    coordinator = Coordinator(commit=[ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION])
    coordinator.member.join()
    assert coordinator.member.commit({("t", 0): 5})
    assert not coordinator.member.commit({("t", 0): 6})
    assert not coordinator.member.commit({("t", 0): 7})
    committed = coordinator.sent(OffsetCommitRequest)
    assert [one.topics[0].partitions[0].committed_offset for one in committed] == [5, 6]
    assert (committed[0].member_id, committed[0].generation_id_or_member_epoch) == ("m", 4)


def test_a_commit_that_is_refused_for_good_is_raised() -> None:
    coordinator = Coordinator(commit=[ErrorCode.OFFSET_METADATA_TOO_LARGE])
    coordinator.member.join()
    with pytest.raises(RequestError, match="t-0"):
        coordinator.member.commit({("t", 0): 5})


def test_the_leader_notices_that_a_topic_has_grown() -> None:
    coordinator = Coordinator()
    coordinator.member.join()
    assert not coordinator.member.topics_changed()
    coordinator.partitions = 4
    assert coordinator.member.topics_changed()
    assert coordinator.member.join() == {"t": [0, 1, 2, 3]}


def test_one_who_leaves_asks_once_whatever_comes_back() -> None:
    coordinator = Coordinator(leave=[ErrorCode.UNKNOWN_MEMBER_ID])
    coordinator.member.join()
    coordinator.member.leave()
    coordinator.member.leave()
    assert [one.member_id for one in coordinator.sent(LeaveGroupRequest)] == ["m"]


def test_members_that_share_in_another_way_are_named_as_the_reason() -> None:
    coordinator = Coordinator(join=[ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
    with pytest.raises(RequestError, match="range or roundrobin"):
        coordinator.member.join()


def test_a_group_that_never_comes_to_rest_is_given_up() -> None:
    coordinator = Coordinator(join=[ErrorCode.REBALANCE_IN_PROGRESS] * 1000)
    with pytest.raises(RequestError, match="does not come to rest"):
        coordinator.member.join()


def test_a_way_of_sharing_that_was_not_offered_ends_the_conversation() -> None:
    coordinator = Coordinator()
    coordinator.protocol = "sticky"
    with pytest.raises(ProtocolError, match="sticky"):
        coordinator.member.join()


# ---- reading as a member


def test_what_the_group_did_not_take_is_told_and_read_again() -> None:
    coordinator = Coordinator(commit=[ErrorCode.ILLEGAL_GENERATION])
    coordinator.partitions = 1
    fetched_from: list[int] = []

    def fetch(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        fetched_from.append(offset)
        partition = FetchResponse.PartitionData(
            partition_index=0, records=build_batch([(None, b"v", 0, ())], base_offset=offset)
        )
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])]
        )

    def committed(_: OffsetFetchRequest) -> OffsetFetchResponse:
        partition = OffsetFetchResponse.OffsetFetchResponsePartition(
            partition_index=0, committed_offset=5, metadata=""
        )
        topic = OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[partition])
        return OffsetFetchResponse(topics=[topic])

    for kind, answer in ((FetchRequest, fetch), (OffsetFetchRequest, committed)):
        coordinator.broker.answers[kind] = answer
        coordinator.broker.versions[kind] = kind.versions
    lost: list[bool] = []
    consumer = GroupConsumer(
        coordinator.client,
        coordinator.client.topic("t"),
        "g",
        begin=lambda partitions: dict.fromkeys(partitions, 0),
        on_lost=lambda: lost.append(True),
    )
    assert [record.offset for _, record in consumer.poll()] == [5]
    consumer.delivered()
    assert lost == []
    coordinator.clock.sleep(COMMIT_INTERVAL_S)
    assert [record.offset for _, record in consumer.poll()] == [5]
    assert lost == [True]
    consumer.delivered()
    consumer.close()
    assert fetched_from == [5, 5]
    commits = coordinator.sent(OffsetCommitRequest)
    assert [one.topics[0].partitions[0].committed_offset for one in commits] == [6, 6]
    assert len(coordinator.sent(LeaveGroupRequest)) == 1


# ---- from outside


def outside(**answers: Any) -> tuple[ScriptedBroker, ClusterClient]:
    named = {
        "list": ListGroupsRequest,
        "describe": DescribeGroupsRequest,
        "fetch": OffsetFetchRequest,
    }
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(brokers=2),
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(node_id=1, host="n1", port=9092),
            **{named[kind]: answer for kind, answer in answers.items()},
        }
    )
    return broker, scripted_client(broker)


def test_all_brokers_are_asked_for_their_groups() -> None:
    names = iter(["b", "a"])

    def listed(_: ListGroupsRequest) -> ListGroupsResponse:
        group = ListGroupsResponse.ListedGroup(group_id=next(names), group_state="Stable")
        return ListGroupsResponse(groups=[group])

    _, client = outside(list=listed)
    assert [group.id for group in list_groups(client)] == ["a", "b"]


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE])
def test_a_group_that_is_not_there_is_said_so_to_old_and_new_clients(code: ErrorCode) -> None:
    group = DescribeGroupsResponse.DescribedGroup(group_id="g", error_code=code, group_state="Dead")
    _, client = outside(describe=lambda _: DescribeGroupsResponse(groups=[group]))
    with pytest.raises(RequestError, match="there is no group g") as raised:
        describe_group(client, "g")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_members_whose_bytes_make_no_sense_are_still_described() -> None:
    member = DescribeGroupsResponse.DescribedGroupMember(
        member_id="m", client_host="/10.0.0.1", member_metadata=b"\xff", member_assignment=b"\xff"
    )
    group = DescribeGroupsResponse.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=[member]
    )
    _, client = outside(describe=lambda _: DescribeGroupsResponse(groups=[group]))
    (found,) = describe_group(client, "g").members
    assert (found.topics, found.assignment, str(found)) == ((), {}, "m (10.0.0.1)")


def test_offsets_of_an_open_transaction_are_waited_for() -> None:
    codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]

    def fetched(request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.require_stable
        partitions = [
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=0, committed_offset=7, metadata="", error_code=codes.pop(0)
            ),
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=1, committed_offset=-1, metadata=""
            ),
        ]
        topic = OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=partitions)
        return OffsetFetchResponse(topics=[topic])

    _, client = outside(fetch=fetched)
    found = committed_offsets(client, "g", [("t", 0), ("t", 1)])
    assert {place: one.offset for place, one in found.items()} == {("t", 0): 7}
    assert codes == []
