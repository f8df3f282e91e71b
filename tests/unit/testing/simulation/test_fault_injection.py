"""Faults that happen when their schedule says, end by themselves, and are all mended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.testing.simulation.client import WorldClient, WorldProducer
from flintmq.testing.simulation.fault_injection import FaultInjection
from flintmq.testing.simulation.fault_schedule import (
    BlockLinks,
    CutPower,
    DelayMessages,
    DropConnections,
    ExpireLeases,
    FailDisk,
    FillDisk,
    JumpClock,
    KillBroker,
    MoveLeaders,
    PauseBroker,
    RestartBroker,
    SkewClock,
    SlowDisk,
    isolated,
    random_schedule,
)
from flintmq.testing.simulation.wires import STORE, broker_name
from flintmq.testing.simulation.world import World
from support.simulation.replicated_topic import ReplicatedTopic


@pytest.fixture
def world() -> Iterator[World]:
    with World(8, brokers=2) as world:
        world.start()
        yield world


def runs(world: World, node: int) -> bool:
    return world.brokers[node].core is not None


@pytest.mark.parametrize("kind", [KillBroker, CutPower, RestartBroker])
def test_a_broker_is_down_for_as_long_as_the_fault_says(
    world: World, kind: type[KillBroker] | type[CutPower] | type[RestartBroker]
) -> None:
    FaultInjection(world).schedule((kind(at_s=1.0, node=2, down_s=3.0),))
    world.run_for(0.9)
    assert runs(world, 2)
    world.run_for(2.0)
    assert not runs(world, 2)
    assert runs(world, 1)
    world.run_for(2.0)
    assert runs(world, 2)
    assert world.counts == {kind.__name__: 1}


def test_a_fault_of_a_broker_that_is_down_does_nothing(world: World) -> None:
    FaultInjection(world).schedule(
        (
            KillBroker(at_s=1.0, node=1, down_s=3.0),
            CutPower(at_s=2.0, node=1, down_s=0.1),
            PauseBroker(at_s=2.0, node=1, for_s=50.0),
            RestartBroker(at_s=2.0, node=1, down_s=0.1),
            DropConnections(at_s=2.0, node=1),
        )
    )
    world.run_for(3.9)
    assert not runs(world, 1)
    world.run_for(1.0)
    assert runs(world, 1)
    assert world.brokers[1].boots == 0


def test_faults_that_last_end_by_themselves(world: World) -> None:
    node = world.brokers[1]
    FaultInjection(world).schedule(
        (
            PauseBroker(at_s=1.0, node=1, for_s=2.0),
            SlowDisk(at_s=1.0, node=1, for_s=2.0, operation_s=0.5),
            FillDisk(at_s=1.0, node=1, for_s=2.0),
            DelayMessages(at_s=1.0, for_s=2.0, delay_s=0.7),
            BlockLinks(at_s=1.0, for_s=2.0, links=isolated(1, [1, 2]), shape="isolated"),
        )
    )

    def state() -> tuple[object, ...]:
        assert node.process is not None
        return (
            node.process.is_paused,
            node.disk_operation_s,
            node.disk.free_bytes == 0,
            world.wires.extra_delay_s,
            world.wires.is_open(broker_name(1), broker_name(2)),
        )

    world.run_for(2.0)
    assert state() == (True, 0.5, True, 0.7, False)
    world.run_for(1.5)
    assert state() == (False, 0.0, False, 0.0, True)


def test_clocks_of_single_brokers_go_wrong(world: World) -> None:
    FaultInjection(world).schedule(
        (JumpClock(at_s=1.0, node=1, by_ms=-3_600_000), SkewClock(at_s=1.0, node=2, rate=2.0))
    )
    before_ms = world.brokers[1].clock.now_ms()
    world.run_for(3.0)
    assert world.brokers[1].clock.now_ms() == pytest.approx(before_ms + 3000 - 3_600_000, abs=1)
    assert world.brokers[2].clock.now_ms() == pytest.approx(before_ms + 5000, abs=1)
    assert world.clients.clock.now_ms() == pytest.approx(before_ms + 3000, abs=1)


def test_a_flapping_link_is_blocked_and_open_by_turns(world: World) -> None:
    link = (broker_name(1), STORE)
    FaultInjection(world).schedule(
        (BlockLinks(at_s=0.0, for_s=3.5, links=(link,), shape="flapping", period_s=1.0),)
    )
    world.run_for(0.25)
    seen = [world.wires.is_open(*link)]
    for _ in range(7):
        world.run_for(0.5)
        seen.append(world.wires.is_open(*link))
    assert seen == [False, False, True, True, False, False, True, True]


def test_a_lease_is_lost_by_a_fault(world: World) -> None:
    node = world.brokers[1]
    assert node.process is not None
    assert world.store is not None
    session = world.store.open(node.process, node.name)
    lease = world.run_until(node.process.spawn(session.lease(9.0)))
    FaultInjection(world).schedule((ExpireLeases(at_s=1.0, node=1),))
    world.run_until(node.process.spawn(lease.lost()), within_s=5)


def test_mending_ends_everything_at_once(world: World) -> None:
    injection = FaultInjection(world)
    injection.schedule(
        (
            KillBroker(at_s=0.5, node=2, down_s=1000.0),
            PauseBroker(at_s=1.0, node=1, for_s=1000.0),
            FailDisk(at_s=1.0, node=1, operation="sync_dir"),
            FailDisk(at_s=1.0, node=2, operation="write"),
            BlockLinks(at_s=1.0, for_s=1000.0, links=isolated(1, [1, 2]), shape="flapping", period_s=0.3),
            CutPower(at_s=500.0, node=1, down_s=1000.0),
        )
    )
    world.run_for(2.0)
    injection.mend()
    world.run_for(5.0)
    for _ in range(10):
        world.run_for(0.3)
        assert world.wires.is_open(broker_name(1), broker_name(2))
    assert runs(world, 1)
    assert runs(world, 2)
    client = WorldClient(world, "client", patience_s=10.0)
    for node in (1, 2):
        world.run_until(
            world.clients.spawn(client.create_topic(f"t{node}", configs={"flush.messages": "1"}, on=node))
        )
        assert world.run_until(world.clients.spawn(WorldProducer(client).send(f"t{node}", 0, [b"x"]))) == 0
    world.run_for(600.0)
    assert runs(world, 1)
    assert not world.counts["CutPower"]


def test_a_log_that_goes_offline_after_all_is_mended_comes_back(world: World) -> None:
    client = WorldClient(world, "client")
    world.run_until(world.clients.spawn(client.create_topic("t", configs={"flush.messages": "1"}, on=1)))
    producer, node = WorldProducer(client), world.brokers[1]
    assert world.run_until(world.clients.spawn(producer.send("t", 0, [b"x"]))) == 0
    injection = FaultInjection(world)
    slow = SlowDisk(at_s=0.0, node=1, for_s=50.0, operation_s=2.0)
    injection.schedule((slow, FailDisk(at_s=0.0, node=1, operation="sync")))
    world.run_until_true(lambda: node.disk.has_faults, within_s=1)
    sending = world.clients.spawn(producer.send("t", 0, [b"y"]))
    world.run_until_true(lambda: not node.disk.has_faults, within_s=30)
    assert not node.has_failed_logs, "the failure is on its way from a thread"
    injection.mend()
    assert world.run_until(sending, within_s=30) == 1
    assert node.starts == 2


def test_leaders_move_among_their_isr_and_never_to_a_broker_that_is_down() -> None:
    with ReplicatedTopic() as cluster:
        cluster.brokers[3].kill()
        cluster.wait(lambda: cluster.isr == [1, 2])
        epoch, leaders = cluster.state.epoch, []
        FaultInjection(cluster.world).schedule((MoveLeaders(at_s=0.0, times=3, period_s=1.0),))
        for _ in range(3):
            cluster.run(0.5)
            leaders.append(cluster.leader)
            cluster.run(0.5)
        assert leaders == [2, 1, 2]
        assert cluster.state.epoch == epoch + 3


def test_any_schedule_is_survived_and_mended() -> None:
    for seed in range(4):
        with World(seed, brokers=2) as world:
            world.start()
            injection = FaultInjection(world)
            injection.schedule(random_schedule(seed, brokers=[1, 2], duration_s=20, count=25))
            world.run_for(20.0)
            injection.mend()
            world.run_until_true(lambda: runs(world, 1) and runs(world, 2), within_s=60)
