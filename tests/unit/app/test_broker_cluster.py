"""Whether a broker of a cluster knows that it has not kept its logs, after power losses and failed disks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from flintmq.testing.simulation.client import WorldClient, WorldProducer
from flintmq.testing.simulation.disk import FaultyOperation
from flintmq.testing.simulation.fault_schedule import without_store
from flintmq.testing.simulation.world import World

_SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}
_TAKEOVER_S = 15.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks that fail are reported."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_another_broker_leads_after_the_disk_of_the_leader_has_failed(operation: FaultyOperation) -> None:
    with World(1, brokers=3, settings=_SETTINGS) as world:
        world.start()
        client = WorldClient(world, "writer")
        producer = WorldProducer(client)
        created = client.create_topic("t", replication_factor=3, configs={"flush.messages": "1"})
        world.run_until(world.clients.spawn(created))
        assert world.run_until(world.clients.spawn(producer.send("t", 0, [b"before"]))) == 0
        leader = world.run_until(world.clients.spawn(client.leader("t", 0, world.timeline.now_s + 1)))
        node = world.brokers[leader]
        node.disk.fail(operation)
        sent = world.clients.spawn(producer.send("t", 0, [b"after"]))
        assert world.run_until(sent, within_s=_TAKEOVER_S) == 1
        assert world.run_until(world.clients.spawn(client.leader("t", 0, world.timeline.now_s + 1))) != leader
        world.run_until_true(lambda: node.starts == 2 and node.is_up, within_s=_TAKEOVER_S)
        assert node.core is not None
        registered = node.core.metadata.image.brokers[leader]
        assert registered.clean_since == registered.epoch


def test_a_power_loss_is_not_forgotten_by_a_clean_stop_before_the_broker_has_registered() -> None:
    """Its logs would count as kept, and it could be elected without records that were acknowledged."""
    with World(1, brokers=3, settings=_SETTINGS) as world:
        world.start()
        node = world.brokers[2]
        node.lose_power()
        node.start()
        world.run_until_true(lambda: node.core is not None, within_s=_TAKEOVER_S)
        # It serves, and its request to register is lost.
        world.wires.block(without_store(2))
        world.run_for(2.0)
        assert not node.is_up
        node.stop()
        world.run_until_true(lambda: node.process is None, within_s=30.0)
        world.wires.unblock(without_store(2))
        node.start()
        world.run_until_true(lambda: node.is_up, within_s=_TAKEOVER_S)
        assert node.core is not None
        registered = node.core.metadata.image.brokers[2]
        assert registered.clean_since == registered.epoch
