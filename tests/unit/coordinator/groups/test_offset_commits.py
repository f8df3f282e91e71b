"""Offsets: who may commit, what is fetched, what goes and when (Z2, Z7, R7, F6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flintmq.coordinator.groups import DeletedTopic, GroupSettings
from flintmq.coordinator.groups.group import GroupState
from flintmq.coordinator.groups.offset_commits import fetched_groups
from flintmq.coordinator.groups.records import GroupValue, group_record
from flintmq.coordinator.runtime.machine import Decision, StoredRecord
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from unit.coordinator.groups.world import World, subscription

DAY_MS = 24 * 60 * 60 * 1000
OK = [ErrorCode.NONE]
P = ("t", 0)


def perform_all(world: World, decisions: Sequence[Decision]) -> None:
    for decision in decisions:
        world.perform(decision)


def delete(world: World, *places: tuple[str, int], group: str = "g") -> OffsetDeleteResponse:
    token = world.token(0)
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)],
            )
            for topic, partition in places
        ],
    )
    world.perform(world.machine.delete_offsets(token, request, 0))
    return world.reply(token, OffsetDeleteResponse)


def codes(reply: OffsetDeleteResponse) -> list[int]:
    return [one.error_code for topic in reply.topics for one in topic.partitions]


# ---- commits


def test_a_committed_offset_is_fetched_also_after_a_restart() -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.commit({P: 5, ("u", 2): 7}, member_id=leader, generation=1) == OK * 2
    world.start(world.log)
    assert world.fetch() == {P: 5, ("u", 2): 7}
    assert world.fetch(("u", 2), ("u", 3)) == {("u", 2): 7, ("u", 3): -1}


def test_a_group_without_members_takes_commits_of_anybody() -> None:
    world = World()
    assert world.commit({P: 5}) == OK
    assert (world.group().is_simple, world.group().state) == (True, GroupState.EMPTY)
    assert world.fetch(P) == {P: 5}


@pytest.mark.parametrize(("version", "code"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_a_generation_of_a_group_that_is_not_there_is_refused(version: int, code: str) -> None:
    world = World()
    assert world.commit({P: 5}, generation=1, version=version) == [ErrorCode[code]]


def test_commits_of_strangers_and_of_the_past_are_refused() -> None:
    world = World()
    (leader,) = world.stable(1)
    assert world.commit({P: 5}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({P: 5}, member_id="nobody", generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({P: 5}, member_id=leader, generation=0) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({P: 5}, member_id=leader, generation=-1) == [ErrorCode.ILLEGAL_GENERATION]
    world.leave((leader, None))
    assert world.commit({P: 5}, member_id=leader, generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.fetch(P) == {P: -1}


def test_members_commit_while_they_prepare_to_rebalance_but_not_while_the_leader_assigns() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.ask_join(leader)
    assert world.commit({P: 5}, member_id=follower, generation=1) == OK
    world.ask_join(follower)
    assert world.commit({P: 6}, member_id=follower, generation=2) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert world.commit({P: 6}, member_id=follower, generation=1) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_commit_stands_for_a_heartbeat() -> None:
    world = World()
    (leader,) = world.stable(1)
    for _ in range(5):
        world.advance(9_000)
        assert world.commit({P: 5}, member_id=leader, generation=1) == OK


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    world = World(GroupSettings(offset_metadata_max_bytes=4))
    assert world.commit({P: 5}, metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({P: 5}, metadata="1234") == OK
    code = world.commit_in_transaction(1, {P: 5}, metadata="12345")
    assert code == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("RECORD_LIST_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_a_commit_that_cannot_be_written_is_refused(cause: str, told: str) -> None:
    world = World()
    world.refuse_writes = ErrorCode[cause]
    assert world.commit({P: 5}) == [ErrorCode[told]]
    assert world.commit_in_transaction(1, {P: 5}) == [ErrorCode[told]]
    assert not world.groups


# ---- fetches


def test_versions_before_8_are_about_one_group() -> None:
    world = World()
    world.commit({P: 5}, metadata="note")
    for version in range(1, 8):
        token = world.token(version)
        asked = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])],
        )
        (group,) = fetched_groups(asked, version)
        world.perform(world.machine.fetch_offsets(token, group, version, require_stable=False))
        reply, _ = decode(OffsetFetchResponse, encode(world.responses[token], version), version)
        found = [
            (one.partition_index, one.committed_offset, one.metadata) for one in reply.topics[0].partitions
        ]
        assert found == [(0, 5, "note"), (1, -1, "")]
    assert fetched_groups(OffsetFetchRequest(group_id="g", topics=None), 2)[0].topics is None


def test_offsets_of_a_topic_made_anew_are_not_those_of_the_one_before() -> None:
    """KIP-848: commits carry the id of their topic."""
    world = World()
    world.commit({P: 5}, topic_id=b"A" * 16, version=10)
    assert world.fetch(P, topic_id=b"A" * 16) == {P: 5}
    assert world.fetch(P, topic_id=b"B" * 16) == {P: -1}
    assert world.fetch(P) == {P: 5}


def test_groups_do_not_see_each_others_offsets() -> None:
    world = World()
    world.commit({P: 5}, group="one")
    assert world.fetch(P, group="other") == {P: -1}
    assert world.fetch(group="other") == {}


# ---- transactions


def test_an_offset_in_a_transaction_counts_when_it_is_committed() -> None:
    world = World()
    world.commit({P: 5})
    assert world.commit_in_transaction(1, {P: 9}) == OK
    assert world.fetch(P) == {P: 5}
    assert world.fetch(P, require_stable=True) == {P: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert world.fetch(require_stable=True) == {P: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    world.start(world.log)
    world.end_transaction(1, committed=True)
    assert world.fetch(P, require_stable=True) == {P: 9}
    world.start(world.log)
    assert world.fetch(P) == {P: 9}


def test_an_offset_in_an_aborted_transaction_never_was() -> None:
    world = World()
    world.commit_in_transaction(1, {P: 9})
    world.end_transaction(1, committed=False)
    assert world.fetch(P, require_stable=True) == {P: -1}


def test_transactions_end_each_by_itself() -> None:
    world = World()
    world.commit_in_transaction(1, {P: 1})
    world.commit_in_transaction(2, {P: 2, ("u", 0): 2})
    world.commit_in_transaction(2, {P: 3}, group="other")
    world.end_transaction(2, committed=True)
    assert world.fetch(P, require_stable=True) == {P: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert world.fetch(("u", 0), require_stable=True) == {("u", 0): 2}
    assert world.fetch(P, group="other", require_stable=True) == {P: 3}
    world.end_transaction(1, committed=True)
    assert world.fetch(P, require_stable=True) == {P: 2}
    world.end_transaction(7, committed=True)


def test_of_a_plain_and_a_transactional_commit_the_later_record_counts() -> None:
    world = World()
    world.commit_in_transaction(1, {P: 9})
    world.commit({P: 5})
    world.end_transaction(1, committed=True)
    assert world.fetch(P) == {P: 5}


def test_transactional_commits_of_members_are_fenced() -> None:
    """KIP-447."""
    world = World()
    (leader,) = world.stable(1)
    assert world.commit_in_transaction(1, {P: 1}, member_id=leader, generation=1) == OK
    assert world.commit_in_transaction(1, {P: 1}) == OK
    refused = [
        world.commit_in_transaction(1, {P: 1}, member_id=leader, generation=2),
        world.commit_in_transaction(1, {P: 1}, member_id="nobody", generation=1),
        world.commit_in_transaction(1, {P: 1}, member_id=leader, generation=1, instance="i"),
        world.commit_in_transaction(1, {P: 1}, group="other", generation=1),
        world.commit_in_transaction(1, {P: 1}, group=""),
    ]
    assert refused == [
        [ErrorCode.ILLEGAL_GENERATION],
        [ErrorCode.UNKNOWN_MEMBER_ID],
        [ErrorCode.UNKNOWN_MEMBER_ID],
        [ErrorCode.ILLEGAL_GENERATION],
        [ErrorCode.INVALID_GROUP_ID],
    ]


# ---- deletion


def test_offsets_of_topics_that_nobody_reads_are_deleted() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.commit({P: 5, ("u", 0): 6, ("u", 1): 7}, member_id=leader, generation=1)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes(delete(world, P, ("u", 0), ("u", 5))) == [subscribed, 0, 0]
    assert world.fetch() == {P: 5, ("u", 1): 7}
    assert World(log=world.log).fetch() == {P: 5, ("u", 1): 7}


def test_deleting_offsets_takes_pending_ones_along() -> None:
    world = World()
    world.commit({P: 5})
    world.commit_in_transaction(1, {P: 9, ("u", 0): 3})
    delete(world, P)
    world.end_transaction(1, committed=True)
    assert world.fetch() == {("u", 0): 3}


def test_offsets_of_a_group_that_is_not_there_or_of_an_unknown_protocol_stay() -> None:
    world = World()
    assert delete(world, P).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(world, P, group="").error_code == ErrorCode.INVALID_GROUP_ID
    world.ask_join(version=1, protocol_type="connect", protocols={"eager": b""})
    assert delete(world, P).error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_go_with_their_topic_but_not_with_one_that_had_its_name() -> None:
    world = World()
    world.commit({P: 1}, topic_id=b"A" * 16)
    world.commit({("t", 1): 2}, topic_id=b"B" * 16)
    world.commit({("t", 2): 3, ("u", 0): 4})
    world.commit_in_transaction(1, {("t", 3): 5}, group="other")
    perform_all(world, world.machine.topics_deleted([DeletedTopic("t", b"A" * 16)]))
    world.end_transaction(1, committed=True)
    assert world.fetch() == {("t", 1): 2, ("u", 0): 4}
    assert world.fetch(group="other") == {}


def test_many_tombstones_are_written_in_parts() -> None:
    world = World()
    world.commit({("t" * 249, partition): 1 for partition in range(3_000)})
    decisions = world.machine.topics_deleted([DeletedTopic("t" * 249, b"A" * 16)])
    assert len(decisions) > 1
    assert all(sum(len(key) for key, _ in one.records) < 300_000 for one in decisions)
    perform_all(world, decisions)
    assert world.fetch() == {}


# ---- expiry (KIP-211)


def expire(world: World) -> None:
    perform_all(world, world.machine.expire_offsets(world.now_ms))


def test_offsets_of_a_simple_group_expire_one_by_one_and_the_group_with_the_last() -> None:
    world = World()
    world.commit({P: 5})
    world.advance(DAY_MS)
    world.commit({("u", 0): 5})
    world.advance(6 * DAY_MS - 1)
    expire(world)
    assert world.fetch() == {P: 5, ("u", 0): 5}
    world.advance(1)
    expire(world)
    assert world.fetch() == {("u", 0): 5}
    world.advance(DAY_MS)
    expire(world)
    assert not world.groups
    assert not World(log=world.log).groups


def test_offsets_of_a_group_with_members_expire_only_for_topics_it_does_not_read() -> None:
    world = World()
    (leader,) = world.stable(1, session_ms=1_800_000)
    world.commit({P: 5, ("u", 0): 6}, member_id=leader, generation=1)
    for _ in range(8 * 48):
        world.advance(1_700_000)
        world.heartbeat(leader, 1)
    assert world.group().state is GroupState.STABLE
    expire(world)
    assert world.fetch() == {P: 5}


def test_the_retention_of_a_group_begins_when_it_becomes_empty() -> None:
    world = World()
    (leader,) = world.stable(1)
    world.commit({P: 5}, member_id=leader, generation=1)
    world.advance(6_000)
    world.leave((leader, None))
    world.advance(7 * DAY_MS - 1)
    expire(world)
    assert world.fetch() == {P: 5}
    world.start(world.log)
    world.advance(1)
    expire(world)
    assert not world.groups


def test_a_group_whose_record_does_not_say_since_when_it_is_empty_goes_by_its_commits() -> None:
    world = World()
    key, value = group_record("g", GroupValue("consumer", 3, None, None, -1, ()))
    world.start([StoredRecord(key, value, 0, world.now_ms)])
    world.commit({P: 5})
    world.advance(7 * DAY_MS - 1)
    expire(world)
    assert world.fetch() == {P: 5}
    world.advance(1)
    expire(world)
    assert not world.groups


def test_nothing_expires_while_a_group_rebalances_or_its_topics_are_not_known() -> None:
    world = World(GroupSettings(offsets_retention_ms=0))
    (leader,) = world.stable(1)
    world.commit({("u", 0): 6}, member_id=leader, generation=1)
    token = world.ask_join(leader, protocols={"range": b"?"})
    expire(world)
    world.ask_sync(leader, world.joined(token).generation_id, {})
    assert world.group().state is GroupState.STABLE
    expire(world)
    assert world.fetch() == {("u", 0): 6}
    world.ask_join(leader, protocols={"range": subscription("t")})
    world.ask_sync(leader, 3, {})
    expire(world)
    assert world.fetch() == {}


def test_an_old_client_says_how_long_its_offsets_are_kept() -> None:
    world = World()
    world.commit({P: 5}, retention_ms=1_000, version=4)
    world.advance(999)
    expire(world)
    assert world.fetch() == {P: 5}
    world.start(world.log)
    world.advance(1)
    expire(world)
    assert world.fetch() == {}


def test_an_offset_with_a_pending_one_does_not_expire() -> None:
    world = World(GroupSettings(offsets_retention_ms=0))
    world.commit({P: 5})
    world.commit_in_transaction(1, {P: 9, ("u", 0): 1})
    expire(world)
    assert world.fetch() == {P: 5}
    world.end_transaction(1, committed=False)
    expire(world)
    assert not world.groups


def test_a_bare_group_goes_unless_someone_is_about_to_join() -> None:
    world = World()
    member = world.new_id()
    expire(world)
    assert "g" in world.groups
    world.leave((member, None))
    expire(world)
    assert not world.groups
