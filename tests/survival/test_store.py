"""The metadata store is away, forgets, is restored, or is written by several brokers at once."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from flintmq.testing.simulation.client import WorldClient
from support.simulation.replicated_topic import NODES, SETTINGS, TOPIC, ReplicatedTopic, between, to_store

_CREATE_PARTITIONS, _DELETE_TOPICS, _DELETE_RECORDS = 3, 6, 2


def _check_equal(cluster: ReplicatedTopic, *acknowledged: str) -> None:
    cluster.wait_until_in_sync()
    logs = [cluster.written(node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == list(acknowledged)


def test_an_outage_of_the_store_hurts_no_traffic() -> None:
    """Five minutes: no acknowledgement needs the store, as long as the ISR keeps fetching."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        epoch = cluster.state.epoch
        cluster.block(to_store(*NODES))
        for index in range(30):
            sent_s = cluster.world.timeline.now_s
            cluster.send(f"{index}")
            assert cluster.world.timeline.now_s - sent_s < 1.0
            cluster.run(10.0)
        cluster.unblock(to_store(*NODES))
        cluster.wait(lambda: cluster.state.epoch > epoch)
        cluster.send("b")
        _check_equal(cluster, "a", *[f"{index}" for index in range(30)], "b")


def test_a_slow_store() -> None:
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.world.wires.extra_delay_s = 1.0
        cluster.restart_after(1, 3.0)
        cluster.send("b")
        cluster.world.wires.extra_delay_s = 0.0
        _check_equal(cluster, "a", "b")


def test_a_store_that_was_restored_from_a_backup_stops_the_brokers() -> None:
    """Revisions and epochs below those that are known: the brokers stop loudly instead of going on."""
    with ReplicatedTopic() as cluster:
        store = cluster.world.store
        assert store is not None
        cluster.send("a")
        backup = store.backup()
        cluster.restart_after(1, 1.0)
        cluster.wait(lambda: cluster.leader == 2)
        cluster.wait_until_in_sync()
        starts = [cluster.brokers[node].starts for node in NODES]
        store.restore(backup)
        cluster.run(60.0)
        assert all(cluster.brokers[node].starts > before for node, before in zip(NODES, starts, strict=True))


def test_a_compaction_with_leader_changes_and_a_recreated_topic_in_the_gap() -> None:
    """A broker that was cut off takes the difference, and does not take the new topic for the old one."""
    with ReplicatedTopic() as cluster:
        store = cluster.world.store
        assert store is not None
        cluster.send("a")
        cluster.create_topic("other", [[1, 2, 3]])
        cluster.wait_until_in_sync()
        core = cluster.brokers[3].core
        assert core is not None
        before = core.metadata.image.topics["other"].id
        links = (*between(3, 1, 2), *to_store(3))
        cluster.block(links)
        cluster.restart_after(1, 1.0)
        cluster.wait(lambda: cluster.leader == 2)
        cluster.wait(lambda: cluster.brokers[1].is_up)
        _delete_topic(cluster, "other")
        cluster.run(2.0)
        cluster.create_topic("other", [[1, 2]], on=2)
        store.compact()
        cluster.unblock(links)
        cluster.send("b")
        _check_equal(cluster, "a", "b")
        core = cluster.brokers[3].core
        assert core is not None
        assert core.metadata.image.topics["other"].id != before
        assert core.partitions.get("other", 0) is None


def test_a_creator_dies_between_partitions_and_topic_key() -> None:
    """Nothing is left of the creation, and the name is free."""
    for delay_ms in range(0, 12, 2):
        with ReplicatedTopic(seed=delay_ms + 1) as cluster:
            request = cluster.client.create_topic("many", partitions=200, on=2)
            creation = cluster.spawn(_ignored(request))
            cluster.run(0.002 + delay_ms / 1000)
            cluster.restart_after(2, 3.0)
            cluster.run(20.0)
            creation.cancel()
            admin = WorldClient(cluster.world, "admin", patience_s=60.0)
            cluster.result(admin.create_topic("many", partitions=1, on=1))
            cluster.run(10.0)
            image = cluster.brokers[1].core
            assert image is not None
            assert not image.metadata.image.unclaimed()
            assert not image.metadata.image.creating


def test_concurrent_create_partitions_keep_what_is_there() -> None:
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        before = cluster.state
        cluster.restart_after(1, 1.0)
        cluster.wait_until_in_sync()

        async def grow(node: int, count: int) -> int:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
                ],
                timeout_ms=5_000,
            )
            client = WorldClient(cluster.world, f"admin {node}")
            response = await client.call(node, request, CreatePartitionsResponse, _CREATE_PARTITIONS)
            return response.results[0].error_code

        async def both() -> list[int]:
            return list(await asyncio.gather(grow(1, 3), grow(2, 3), grow(3, 5)))

        codes = cluster.result(both())
        assert ErrorCode.NONE in codes
        assert cluster.state.epoch > before.epoch, "the first partition keeps its state"
        cluster.send("b")
        _check_equal(cluster, "a", "b")


def test_a_reassignment_whose_target_dies_is_cancelled() -> None:
    """KIP-455: it waits for the target, and goes back to the replicas from before."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        _reassign(cluster, [1, 2])
        cluster.wait(lambda: cluster.state.replicas == [1, 2])
        cluster.block(between(3, 1, 2))
        _reassign(cluster, [2, 3])
        cluster.wait(lambda: cluster.state.adding == [3])
        cluster.send("b")
        cluster.brokers[3].kill()
        cluster.run(10.0)
        assert cluster.state.adding == [3]
        _reassign(cluster, None)
        cluster.wait(lambda: sorted(cluster.state.replicas) == [1, 2])
        cluster.send("c")
        assert cluster.written(1) == ["a", "b", "c"]


def test_a_topic_is_deleted_while_it_is_reassigned() -> None:
    with ReplicatedTopic() as cluster:
        store = cluster.world.store
        assert store is not None
        cluster.send("a")
        _reassign(cluster, [1, 2])
        cluster.wait(lambda: cluster.state.replicas == [1, 2])
        cluster.block(between(3, 1, 2))
        _reassign(cluster, [2, 3])
        cluster.wait(lambda: cluster.state.adding == [3])
        _delete_topic(cluster, TOPIC)
        cluster.unblock(between(3, 1, 2))
        cluster.wait(lambda: cluster.key not in store.items)
        cluster.run(90.0)
        assert not [key for key in store.items if "deleting" in key]
        for node in NODES:
            core = cluster.brokers[node].core
            assert core is not None
            assert core.partitions.get(TOPIC, 0) is None


def test_the_start_never_goes_back_when_records_are_deleted_during_a_failover() -> None:
    """KIP-107: DeleteRecords succeeds only when every live replica begins there."""
    with ReplicatedTopic() as cluster:
        cluster.send("a", "b")
        cluster.send("c")
        cluster.send("d")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 3))

        async def delete() -> int:
            partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=3)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])],
                timeout_ms=5_000,
            )
            client = WorldClient(cluster.world, "deleter", request_timeout_s=30.0)
            response = await client.call(1, request, DeleteRecordsResponse, _DELETE_RECORDS)
            return response.topics[0].partitions[0].error_code

        deleting = cluster.spawn(delete())
        cluster.wait(lambda: cluster.partition(2).log.start_offset == 3)
        assert not deleting.done(), "broker 3 still holds the records"
        cluster.unblock(between(1, 3))
        cluster.wait(deleting.done)
        assert deleting.result() == ErrorCode.NONE
        cluster.restart_after(1, 1.0)
        cluster.wait(lambda: cluster.leader == 2)
        assert cluster.result(cluster.list_offset(2, timestamp=-2)) == (ErrorCode.NONE, 3)
        cluster.wait_until_in_sync()
        assert [cluster.partition(node).log.start_offset for node in NODES] == [3, 3, 3]


async def _ignored(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except Exception:
        return


def _delete_topic(cluster: ReplicatedTopic, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=5_000)

    async def delete() -> int:
        response = await WorldClient(cluster.world, "deleter").call(
            1, request, DeleteTopicsResponse, _DELETE_TOPICS
        )
        return response.responses[0].error_code

    assert cluster.result(delete()) == ErrorCode.NONE


def _reassign(cluster: ReplicatedTopic, target: list[int] | None) -> None:
    """Ask the controller itself."""
    node = cluster.brokers[cluster.controller]
    assert node.core is not None
    assert node.core.cluster is not None
    assert node.process is not None
    topic_id = cluster.topic_image(cluster.controller).id
    controller = node.core.cluster.controller
    asked = node.process.spawn(controller.reassign(topic_id, 0, target, factor_may_change=True))
    cluster.wait(asked.done)
    asked.result()


@pytest.fixture(autouse=True)
def _short_delete_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "log.segment.delete.delay.ms", "1000")
