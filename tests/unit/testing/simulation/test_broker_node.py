"""A simulated machine with a real broker: what a kill, a power loss, a pause and a bad disk leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq.testing.simulation.client import WorldClient, WorldProducer, WorldReader
from flintmq.testing.simulation.wires import STORE, broker_name
from flintmq.testing.simulation.world import World

_SYNCED = {"flush.messages": "1"}
_UNSYNCED: dict[str, str] = {}


class Stage:
    def __init__(self, world: World, configs: dict[str, str]) -> None:
        self.world = world
        self.node = world.brokers[1]
        self.client = WorldClient(world, "client", request_timeout_s=2.0)
        self.producer = WorldProducer(self.client)
        world.run_until(world.clients.spawn(self.client.create_topic("t", configs=configs)))

    def send(self, *values: bytes) -> int | None:
        return self.world.run_until(self.world.clients.spawn(self.producer.send("t", 0, values)))

    def restart(self) -> None:
        self.node.start()
        self.world.run_until_true(lambda: self.node.core is not None, within_s=30)

    def values(self) -> list[bytes | None]:
        async def read() -> list[bytes | None]:
            end = await self.client.end_offset("t", 0)
            reader, found = WorldReader(self.client, {("t", 0): 0}), list[bytes | None]()
            while reader.positions["t", 0] < end:
                found += [record.value for record in await reader.poll("t", 0)]
            return found

        return self.world.run_until(self.world.clients.spawn(read()))


@contextmanager
def staged(
    configs: dict[str, str],
    *,
    seed: int = 1,
    shared_store: bool = True,
    settings: dict[str, str] | None = None,
) -> Iterator[Stage]:
    with World(seed, brokers=1, shared_store=shared_store, settings=settings) as world:
        world.start()
        yield Stage(world, configs)


def test_a_kill_keeps_what_was_written_and_a_power_loss_what_was_synced() -> None:
    lost = 0
    for seed in range(10):
        with staged(_UNSYNCED, seed=seed) as stage:
            assert stage.send(b"1", b"2") == 0
            stage.node.kill()
            stage.restart()
            assert stage.values() == [b"1", b"2"]
            stage.node.lose_power()
            assert not stage.node.has_power
            stage.restart()
            lost += stage.values() != [b"1", b"2"]
        with staged(_SYNCED, seed=seed) as stage:
            assert stage.send(b"1", b"2") == 0
            stage.node.lose_power()
            stage.restart()
            assert stage.values() == [b"1", b"2"]
            assert stage.node.boots == 1
    assert lost, "nothing that was never synced was lost in ten power losses"


def test_an_idempotent_retry_after_a_kill_is_stored_once() -> None:
    with staged(_UNSYNCED) as stage:
        assert stage.send(b"1") == 0
        # The record is written, and the response does not arrive.
        stage.world.wires.block([(stage.node.name, "clients")])
        sending = stage.world.clients.spawn(stage.producer.send("t", 0, [b"2"]))
        stage.world.run_for(0.5)
        core = stage.node.core
        assert core is not None
        assert core.log_dir.logs["t", 0].end_offset == 2
        stage.node.kill()
        stage.world.wires.unblock([(stage.node.name, "clients")])
        stage.restart()
        stage.world.run_until(sending)
        assert stage.values() == [b"1", b"2"]


@pytest.mark.parametrize("power", [False, True])
def test_a_process_can_die_right_before_any_operation_of_its_disk(power: bool) -> None:
    ended = set()
    for count in range(1, 9):
        with staged(_SYNCED, seed=count) as stage:
            assert stage.send(b"1") == 0
            dead = stage.node.process
            stage.node.die_at_disk_operation(count, power=power)
            stage.node.start_after_end(0.5)
            sending = stage.world.clients.spawn(stage.producer.send("t", 0, [b"2"]))
            stage.world.run_until(sending)
            stage.world.run_for(70.0)  # checkpoints come once a minute
            assert stage.node.process is not dead
            assert stage.values() == [b"1", b"2"]
            ended.add(
                next(line for line in stage.world.trace.lines if "broker 1: kill" in line or "power" in line)
            )
    assert len(ended) > 1


def test_an_orderly_stop_leaves_the_marker_of_one() -> None:
    with staged(_UNSYNCED) as stage:
        stage.send(b"1")
        stage.node.stop()
        stage.world.run_until_true(lambda: stage.node.process is None, within_s=30)
        assert stage.node.disk.exists("data/clean-shutdown")
        stage.restart()
        assert stage.values() == [b"1"]
        stage.node.kill()
        assert not stage.node.disk.exists("data/clean-shutdown")


def test_a_paused_broker_answers_when_it_runs_again() -> None:
    with staged(_UNSYNCED) as stage:
        stage.node.pause()
        sending = stage.world.clients.spawn(stage.producer.send("t", 0, [b"1"]))
        stage.world.run_for(30.0)
        assert not sending.done()
        stage.node.resume()
        stage.world.run_until(sending)
        assert stage.values() == [b"1"]


def test_a_slow_disk_holds_up_requests() -> None:
    with staged(_SYNCED) as stage:
        stage.send(b"1")
        began_s = stage.world.timeline.now_s
        stage.send(b"2")
        quick_s, began_s = stage.world.timeline.now_s - began_s, stage.world.timeline.now_s
        stage.node.disk_operation_s = 0.3
        stage.send(b"3")
        slow_s = stage.world.timeline.now_s - began_s
        assert slow_s > quick_s + 0.5, "a write on the loop and a sync in a thread"


def test_a_full_disk_takes_records_again_once_it_has_room() -> None:
    with staged(_SYNCED, settings={"log.segment.bytes": "16384"}) as stage:
        stage.send(b"1")
        free_bytes = stage.node.disk.free_bytes
        stage.node.fill_disk()
        sending = stage.world.clients.spawn(stage.producer.send("t", 0, [b"2" * 100]))
        stage.world.run_for(5.0)
        assert not sending.done()
        stage.node.free_disk()
        assert stage.node.disk.free_bytes == pytest.approx(free_bytes, abs=100_000)
        if stage.node.has_failed_logs:
            stage.node.kill()
            stage.restart()
        stage.world.run_until(sending)
        assert stage.values() == [b"1", b"2" * 100]


def test_a_failed_sync_takes_the_log_offline_until_a_restart() -> None:
    with staged(_SYNCED, shared_store=False) as stage:
        stage.send(b"1")
        stage.node.disk.fail("sync")
        sending = stage.world.clients.spawn(stage.producer.send("t", 0, [b"2"]))
        stage.world.run_for(5.0)
        assert stage.node.has_failed_logs
        assert not sending.done()
        stage.node.kill()
        stage.restart()
        assert not stage.node.has_failed_logs
        stage.world.run_until(sending)
        assert stage.values() == [b"1", b"2"]


def test_a_broker_of_a_cluster_stops_after_a_failed_sync_and_is_started_again() -> None:
    with staged(_SYNCED) as stage:
        stage.send(b"1")
        process = stage.node.process
        stage.node.disk.fail("sync")
        stage.world.run_until(stage.world.clients.spawn(stage.producer.send("t", 0, [b"2"])))
        assert stage.node.process is not process
        assert not stage.node.has_failed_logs
        assert stage.values() == [b"1", b"2"]


def test_a_broker_whose_metadata_fails_ends_and_is_started_again() -> None:
    with staged(_UNSYNCED, shared_store=False) as stage:
        process = stage.node.process
        stage.node.disk.fail("sync")
        stage.world.run_until(
            stage.world.clients.spawn(stage.client.create_topic("u", configs={"retention.ms": "1000"}))
        )
        assert stage.node.process is not process
        assert stage.node.core is not None
        assert {"t", "u"} <= set(stage.node.core.metadata.image.topics)


def test_a_broker_that_cannot_reach_the_store_is_started_until_it_can() -> None:
    with staged(_UNSYNCED) as stage:
        stage.send(b"1")
        stage.node.kill()
        links = [(broker_name(1), STORE), (STORE, broker_name(1))]
        stage.world.wires.block(links)
        stage.node.start()
        stage.world.run_for(30.0)
        assert stage.node.core is None
        assert stage.node.starts > 3
        stage.world.wires.unblock(links)
        stage.world.run_until_true(lambda: stage.node.core is not None, within_s=60)
        assert stage.values() == [b"1"]


def test_brokers_on_one_store_know_each_others_topics_and_serve_their_own() -> None:
    with World(2, brokers=3) as world:
        world.start()
        client = WorldClient(world, "client")
        for node_id in world.brokers:
            world.run_until(world.clients.spawn(client.create_topic(f"t{node_id}", on=node_id)))
            sent = world.clients.spawn(WorldProducer(client).send(f"t{node_id}", 0, [b"x"]))
            assert world.run_until(sent) == 0
        world.run_for(1.0)
        for node_id, node in world.brokers.items():
            assert node.core is not None
            assert sorted(node.core.metadata.image.topics) == ["t1", "t2", "t3"]
            assert [partition.topic for partition in node.core.partitions] == [f"t{node_id}"]


def test_a_broker_with_a_new_disk_has_its_partitions_and_no_records() -> None:
    with staged(_SYNCED) as stage:
        stage.send(b"1")
        stage.node.kill()
        stage.node.replace_disk()
        stage.restart()
        assert stage.values() == []


def test_single_brokers_may_have_settings_of_their_own() -> None:
    with World(
        1, brokers=2, settings={"num.partitions": "3"}, own_settings={2: {"broker.rack": "r2"}}
    ) as world:
        assert [node.settings.broker.num_partitions for node in world.brokers.values()] == [3, 3]
        assert [node.settings.broker.broker_rack for node in world.brokers.values()] == [None, "r2"]
        assert [node.settings.broker.node_id for node in world.brokers.values()] == [1, 2]
