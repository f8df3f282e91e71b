"""Clients of a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.testing.simulation.client import OutcomeUnknown, PartitionLeader, WorldClient, WorldProducer
from flintmq.testing.simulation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with World(6, brokers=2) as world:
        world.start()
        yield world


def test_a_leader_of_an_older_epoch_is_not_believed(world: World) -> None:
    client = WorldClient(world, "client", patience_s=5.0)
    world.run_until(world.clients.spawn(client.create_topic("t", on=2)))
    assert world.run_until(world.clients.spawn(client.leader("t", 0, 100.0))) == 2
    client._leaders["t", 0] = PartitionLeader(-1, 1)
    task = world.clients.spawn(client.leader("t", 0, world.timeline.now_s + 3.0))
    world.run_until_true(task.done, within_s=30)
    assert isinstance(task.exception(), OutcomeUnknown)


def test_an_operation_is_given_up_when_patience_is_over(world: World) -> None:
    client = WorldClient(world, "client", patience_s=4.0, request_timeout_s=1.0)
    world.run_until(world.clients.spawn(client.create_topic("t", on=1)))
    producer = WorldProducer(client)
    assert world.run_until(world.clients.spawn(producer.send("t", 0, [b"1"]))) == 0
    world.brokers[1].kill()
    began_s = world.timeline.now_s
    task = world.clients.spawn(producer.send("t", 0, [b"2"]))
    world.run_until_true(task.done, within_s=60)
    assert isinstance(task.exception(), OutcomeUnknown)
    assert 4.0 < world.timeline.now_s - began_s < 15.0


def test_producers_of_several_brokers_have_ids_of_their_own(world: World) -> None:
    ids = {
        world.run_until(world.clients.spawn(WorldClient(world, f"client {n}").new_producer_id()))
        for n in range(8)
    }
    assert len(ids) == 8
    assert len({producer_id // 1000 for producer_id, _ in ids}) == 2, "each broker takes blocks of its own"
