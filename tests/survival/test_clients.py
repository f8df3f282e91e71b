"""Producers, consumers and coordinators across failovers."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.protocol.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from flintmq.testing.simulation.client import WorldClient, WorldProducer, WorldReader
from flintmq.testing.simulation.transactional_client import TransactionalWorldProducer
from support.simulation.replicated_topic import NODES, TOPIC, ReplicatedTopic, between, to_store

INTERNAL = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "3000",
}


def _check_equal(cluster: ReplicatedTopic, *acknowledged: str) -> None:
    cluster.wait_until_in_sync()
    logs = [cluster.written(node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == list(acknowledged)


def test_an_idempotent_retry_after_a_failover_is_no_duplicate() -> None:
    """The batch is in the new leader's log, and its response was lost with the old leader."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.block((("broker 1", "clients"),))
        sending = cluster.spawn(cluster.producer.send(TOPIC, 0, [b"b"]))
        cluster.wait(lambda: all(cluster.partition(node).log.end_offset == 2 for node in NODES))
        cluster.restart_after(1, 20.0)
        cluster.unblock((("broker 1", "clients"),))
        cluster.world.run_until(sending)
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_an_idempotent_retry_after_a_truncation_is_written() -> None:
    """Only the old leader had the batch: after its truncation the producer's state must not know it either."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        sending = cluster.spawn(cluster.producer.send(TOPIC, 0, [b"b"]))
        cluster.wait(lambda: cluster.partition(1).log.end_offset == 2)
        cluster.block((("clients", "broker 1"), ("broker 1", "clients")))
        cluster.wait(lambda: cluster.leader == 2)
        # Until the others know of it, they may still copy the batch.
        cluster.run(0.5)
        # The truncation of broker 1 comes before the retry, which it then takes as the leader again.
        cluster.block((("clients", "broker 2"), ("broker 2", "clients")))
        cluster.unblock(links)
        cluster.wait(lambda: cluster.partition(1).log.end_offset == 1)
        cluster.wait(lambda: 1 in cluster.isr)
        cluster.elect(1)
        cluster.unblock((("clients", "broker 1"), ("broker 1", "clients")))
        cluster.unblock((("clients", "broker 2"), ("broker 2", "clients")))
        cluster.world.run_until(sending)
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_a_consumer_reads_from_a_follower_that_is_behind() -> None:
    """KIP-392: the follower returns what it has below its own watermark."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 3))
        sending = cluster.spawn(cluster.producer.send(TOPIC, 0, [b"b"]))
        cluster.world.run_until(sending)

        async def fetch(offset: int) -> tuple[int, int]:
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[
                    FetchRequest.FetchTopic(
                        topic=TOPIC,
                        partitions=[
                            FetchRequest.FetchPartition(
                                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
            )
            response = await cluster.client.call(3, request, FetchResponse, 12)
            found = response.responses[0].partitions[0]
            return found.error_code, len(found.records or b"")

        code, size = cluster.result(fetch(0))
        assert code == ErrorCode.NONE
        assert size
        # Where its log ends there is nothing yet; beyond, consumers go back to the leader, as they do with Kafka.
        assert cluster.result(fetch(1)) == (ErrorCode.NONE, 0)
        assert cluster.result(fetch(2)) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
        cluster.unblock(between(1, 3))
        _check_equal(cluster, "a", "b")


def test_the_watermark_of_a_new_leader_does_not_send_consumers_back() -> None:
    """KIP-207: ListOffsets waits until the new leader knows the watermark of the one before."""
    with ReplicatedTopic() as cluster:
        for index in range(5):
            cluster.send(f"{index}")
        # The followers do not know yet that the last record is committed.
        cluster.restart_after(1, 20.0)
        cluster.wait(lambda: cluster.leader == 2 and cluster.partition(2).leader == 2)
        seen: list[tuple[ErrorCode, int]] = []
        while len(seen) < 20:
            seen.append(cluster.result(cluster.list_offset(2)))
        assert {code for code, _ in seen} <= {
            ErrorCode.NONE,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        assert {end for code, end in seen if code is ErrorCode.NONE} == {5}


def test_a_transaction_commits_across_a_move_of_its_coordinator() -> None:
    """Decided markers reach partitions of other brokers, though the coordinator dies at once."""
    for delay_ms in (0, 1, 2, 4, 6, 10, 20):
        with ReplicatedTopic(seed=delay_ms + 1, settings=INTERNAL) as cluster:
            cluster.create_topic("second", [[2, 3, 1]], {"min.insync.replicas": "2"})
            producer = TransactionalWorldProducer(cluster.client, "tx")
            cluster.result(producer.open())
            cluster.result(producer.send(TOPIC, 0, [b"a"]))
            cluster.result(producer.send("second", 0, [b"b"]))
            ending = cluster.spawn(producer.end(commits=True))
            cluster.run(0.001 + delay_ms / 1000)
            cluster.restart_after(_leader_of(cluster, "__transaction_state"), 10.0)
            cluster.world.run_until(ending)
            cluster.wait_until_in_sync()
            assert _read_committed(cluster, TOPIC) == ["a"]
            assert _read_committed(cluster, "second") == ["b"]


def test_a_marker_waits_for_a_target_that_cannot_be_reached() -> None:
    """An unreachable partition is not taken for one that needs no marker."""
    with ReplicatedTopic(settings=INTERNAL) as cluster:
        cluster.create_topic("second", [[2]], {"min.insync.replicas": "1"})
        cluster.create_topic("third", [[3]], {"min.insync.replicas": "1"})
        producer = TransactionalWorldProducer(cluster.client, "tx", transaction_timeout_ms=600_000)
        cluster.result(producer.open())
        coordinator = _leader_of(cluster, "__transaction_state")
        topic, node = ("second", 2) if coordinator != 2 else ("third", 3)
        cluster.result(producer.send(TOPIC, 0, [b"a"]))
        cluster.result(producer.send(topic, 0, [b"b"]))
        cluster.brokers[node].kill()
        ending = cluster.spawn(producer.end(commits=True))
        cluster.run(20.0)
        cluster.brokers[node].start()
        cluster.world.run_until(ending)
        cluster.wait_until_in_sync()
        assert _read_committed(cluster, TOPIC) == ["a"]
        assert _read_committed(cluster, topic) == ["b"]


def test_a_marker_follows_its_partition_to_another_leader() -> None:
    with ReplicatedTopic(settings=INTERNAL) as cluster:
        producer = TransactionalWorldProducer(cluster.client, "tx", transaction_timeout_ms=600_000)
        cluster.result(producer.open())
        cluster.result(producer.send(TOPIC, 0, [b"a"]))
        cluster.brokers[1].pause()
        ending = cluster.spawn(producer.end(commits=True))
        cluster.wait(lambda: cluster.leader != 1)
        cluster.brokers[1].resume()
        cluster.world.run_until(ending)
        cluster.wait_until_in_sync()
        assert _read_committed(cluster, TOPIC) == ["a"]


def test_a_delayed_end_of_a_transaction_is_fenced() -> None:
    """KIP-890: an EndTxn of the instance before ends nothing of the next one."""
    with ReplicatedTopic(settings=INTERNAL) as cluster:
        first = TransactionalWorldProducer(cluster.client, "tx")
        cluster.result(first.open())
        cluster.result(first.send(TOPIC, 0, [b"a"]))
        second = TransactionalWorldProducer(WorldClient(cluster.world, "second"), "tx")
        cluster.result(second.open())
        cluster.result(second.send(TOPIC, 0, [b"b"]))
        with pytest.raises(RequestError):
            cluster.result(first.end(commits=True))
        cluster.result(second.end(commits=True))
        assert _read_committed(cluster, TOPIC) == ["b"]


def test_a_group_coordinator_moves_in_mid_join() -> None:
    """The member that waits is answered, and joins at the new coordinator."""
    with ReplicatedTopic(settings=INTERNAL) as cluster:
        client = WorldClient(cluster.world, "member", request_timeout_s=30.0)
        before = cluster.result(_coordinator(client))
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

        async def join(node: int) -> JoinGroupResponse:
            return await client.call(node, request, JoinGroupResponse, 3)

        joining = cluster.spawn(join(before))
        cluster.run(0.5)
        assert not joining.done()
        _elect_internal(cluster, "__consumer_offsets", next(node for node in NODES if node != before))
        cluster.wait(joining.done, within_s=1.0)
        assert joining.result().error_code == ErrorCode.NOT_COORDINATOR
        cluster.run(1.0)
        after = cluster.result(_coordinator(client))
        assert after != before
        assert cluster.result(join(after)).error_code == ErrorCode.NONE


def test_a_group_coordinator_moves_in_mid_commit() -> None:
    """KAFKA-20634: a commit that is truncated with the old coordinator's log is not acknowledged."""
    with ReplicatedTopic(settings=INTERNAL) as cluster:
        client = WorldClient(cluster.world, "member", request_timeout_s=60.0)
        before = cluster.result(_coordinator(client))
        assert cluster.result(_commit(client, before, 1)) == ErrorCode.NONE
        others = [node for node in NODES if node != before]
        links = (*between(before, *others), *to_store(before))
        cluster.block(links)
        committing = cluster.spawn(_commit(client, before, 7))
        cluster.wait(lambda: _leader_of(cluster, "__consumer_offsets") != before)
        # Until the others know of it, they may still copy the commit, and it would be acknowledged rightly.
        cluster.run(0.5)
        cluster.unblock(links)
        assert cluster.world.run_until(committing) != ErrorCode.NONE
        after = _leader_of(cluster, "__consumer_offsets")
        cluster.run(2.0)
        assert cluster.result(_committed(WorldClient(cluster.world, "other"), after)) == 1


async def _coordinator(client: WorldClient) -> int:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    while True:
        response = await client.call_any(request, FindCoordinatorResponse, 4)
        found = response.coordinators[0]
        if not found.error_code:
            heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="x")
            code = (await client.call(found.node_id, heartbeat, HeartbeatResponse, 3)).error_code
            if code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return found.node_id
        await client.pause(client.now_s() + 60)


async def _commit(client: WorldClient, node: int, offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    response = await client.call(node, request, OffsetCommitResponse, 8)
    return response.topics[0].partitions[0].error_code


async def _committed(client: WorldClient, node: int) -> int:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id="group",
                topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
            )
        ]
    )
    response = await client.call(node, request, OffsetFetchResponse, 8)
    assert not response.groups[0].error_code, response
    return response.groups[0].topics[0].partitions[0].committed_offset


def _state_key(cluster: ReplicatedTopic, topic: str) -> str:
    for node in cluster.brokers.values():
        if node.core is not None and topic in node.core.metadata.image.topics:
            return keys.partition(node.core.metadata.image.topics[topic].id, 0)
    raise AssertionError(f"nobody knows {topic}")


def _leader_of(cluster: ReplicatedTopic, topic: str) -> int:
    store = cluster.world.store
    assert store is not None
    return keys.decode_partition(store.items[_state_key(cluster, topic)].value).leader


def _elect_internal(cluster: ReplicatedTopic, topic: str, node: int) -> None:
    key, cluster.key = cluster.key, _state_key(cluster, topic)
    cluster.wait(lambda: node in cluster.isr)
    cluster.elect(node)
    cluster.key = key


def _read_committed(cluster: ReplicatedTopic, topic: str) -> list[str]:
    async def read_all() -> list[str]:
        client = WorldClient(cluster.world, f"reader of {topic}", patience_s=120.0)
        end = await client.end_offset(topic, 0)
        reader = WorldReader(client, {(topic, 0): 0}, committed_only=True)
        found: list[str] = []
        while reader.positions[topic, 0] < end:
            found += [(record.value or b"").decode() for record in await reader.poll(topic, 0)]
        return found

    return cluster.result(read_all())


def test_a_producer_that_is_not_idempotent_is_unaffected_by_its_neighbours() -> None:
    """Two producers across a failover: each batch of both is there once."""
    with ReplicatedTopic() as cluster:
        other = WorldProducer(WorldClient(cluster.world, "neighbour", patience_s=120.0))
        for index in range(4):
            sending = cluster.spawn(other.send(TOPIC, 0, [b"n%d" % index]))
            if index == 1:
                cluster.restart_after(cluster.leader, 3.0)
            cluster.send(f"{index}")
            cluster.world.run_until(sending)
        _check_equal(cluster, "0", "1", "2", "3")
        assert sorted(value for value in cluster.written(1) if value[0] == "n") == ["n0", "n1", "n2", "n3"]
