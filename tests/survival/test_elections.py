"""Leaders come and go: who is elected, what zombies may do, and what a controller that was replaced may not."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.metadata import keys
from flintmq.partitions.partition import Role
from flintmq.testing.simulation.fault_schedule import bridge, clients_only, isolated, one_way
from flintmq.testing.simulation.wires import Link, broker_name
from support.simulation.replicated_topic import NODES, ReplicatedTopic, between, to_store

UNSYNCED = {"flush.messages": "1000000"}


def _check_equal(cluster: ReplicatedTopic, *acknowledged: str) -> None:
    cluster.wait_until_in_sync()
    logs = [cluster.written(node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == list(acknowledged)


def test_the_last_replica_standing_is_not_replaced_after_an_unclean_restart_of_it() -> None:
    """KIP-966: broker 1 is alone and loses power; an eligible replica leads, and not the one that lost records."""
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        cluster.send("a", "b")
        cluster.wait_until_in_sync()
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        cluster.wait(lambda: cluster.isr == [1])
        assert sorted(cluster.state.elr) == [2, 3]
        cluster.brokers[1].start_after_end(0.5)
        cluster.brokers[1].lose_power()
        cluster.wait(lambda: cluster.brokers[1].is_up)
        cluster.run(10.0)
        assert cluster.leader == -1
        cluster.brokers[2].start()
        cluster.wait(lambda: cluster.leader == 2)
        cluster.brokers[3].start()
        _check_equal(cluster, "a", "b")


def test_no_replica_leads_after_all_have_lost_power_without_a_sync() -> None:
    """Unless an unclean election is allowed, the partition waits: every replica may lack acknowledged records."""
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        cluster.send("a")
        for node in NODES:
            cluster.brokers[node].start_after_end(1.0)
            cluster.brokers[node].lose_power()
        cluster.wait(lambda: all(cluster.brokers[node].is_up for node in NODES))
        cluster.run(20.0)
        assert cluster.leader == -1


def test_all_lose_power_where_every_record_is_synced() -> None:
    """With flush.messages=1 nothing acknowledged is lost, so an unclean election loses nothing either."""
    with ReplicatedTopic(configs={"unclean.leader.election.enable": "true"}) as cluster:
        cluster.send("a", "b")
        for node in NODES:
            cluster.brokers[node].start_after_end(1.0)
            cluster.brokers[node].lose_power()
        cluster.wait(lambda: all(cluster.brokers[node].is_up for node in NODES))
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_a_broker_that_was_killed_in_the_same_boot_stays_eligible() -> None:
    """The operating system has kept what the process wrote."""
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        for node in NODES:
            cluster.restart_after(node, 1.0)
        cluster.wait(lambda: cluster.leader != -1 and all(cluster.brokers[node].is_up for node in NODES))
        cluster.send("b")
        _check_equal(cluster, "a", "b")


def test_a_zombie_never_acknowledges_with_acks_all() -> None:
    """A leader that is cut off from everything but clients: acks=1 is lost, as in Kafka; acks=all never lies."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = clients_only(1, NODES)
        cluster.block(links)
        assert cluster.result(cluster.produce_to(1, "one", acks=1)) is ErrorCode.NONE
        parked = cluster.spawn(cluster.produce_to(1, "all", timeout_ms=30_000, name="all"))
        cluster.wait(lambda: cluster.leader == 2)
        cluster.send("b")
        # Readers of the zombie see nothing that is not committed.
        code, end = cluster.result(cluster.list_offset(1))
        assert code is not ErrorCode.NONE or end == 1
        cluster.unblock(links)
        _check_equal(cluster, "a", "b")
        assert cluster.written(1) == ["a", "b"]
        # The offset at which the zombie wrote is committed now, with another record.
        cluster.send("c", "d", "e")
        assert cluster.world.run_until(parked) is not ErrorCode.NONE


SHAPES: dict[str, tuple[Link, ...]] = {
    "isolated": isolated(1, NODES),
    "one way": one_way(1, NODES),
    "bridge": bridge(NODES, 3),
    "clients only": clients_only(1, NODES),
    "leader without store": to_store(1),
    "follower without leader": between(1, 3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_partitioned_network(shape: str) -> None:
    """Asymmetric and bridge partitions, and a broker that sees clients but neither peers nor the store."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.block(SHAPES[shape])
        cluster.send("b")
        cluster.run(15.0)
        cluster.send("c")
        cluster.unblock(SHAPES[shape])
        cluster.send("d")
        _check_equal(cluster, "a", "b", "c", "d")


def test_a_flapping_network() -> None:
    with ReplicatedTopic() as cluster:
        links = isolated(1, NODES)
        for index in range(12):
            cluster.block(links)
            cluster.run(0.3 + 0.2 * index)
            cluster.unblock(links)
            cluster.run(0.4)
            cluster.send(f"{index}")
        _check_equal(cluster, *[f"{index}" for index in range(12)])


@pytest.mark.parametrize("seconds", [0.5, 5.0, 30.0])
@pytest.mark.parametrize("node", [1, 3])
def test_a_broker_is_paused(node: int, seconds: float) -> None:
    """SIGSTOP of a leader or a follower: it wakes up as what it was, and learns better."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[node].pause()
        sending = cluster.spawn(cluster.producer.send("orders", 0, [b"b"]))
        cluster.run(seconds)
        cluster.brokers[node].resume()
        cluster.world.run_until(sending)
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_a_controller_that_was_paused_in_mid_plan_changes_nothing() -> None:
    """It wakes up with a transaction to write, when another broker is the controller."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        first = cluster.controller
        victim = next(node for node in NODES if node != first)
        cluster.brokers[victim].kill()
        # The registration has just vanished; the plan is made, and not written.
        cluster.wait(lambda: victim not in _registered(cluster))
        cluster.brokers[first].pause()
        cluster.run(10.0)
        assert cluster.controller not in (first, -1)
        epoch = cluster.state.epoch
        leader = cluster.leader
        cluster.brokers[first].resume()
        cluster.run(1.0)
        assert cluster.controller != first
        assert (cluster.state.epoch, cluster.leader) == (epoch, leader)
        cluster.brokers[victim].start()
        cluster.send("b")
        _check_equal(cluster, "a", "b")


def test_two_brokers_that_take_the_controllers_key_at_once() -> None:
    with ReplicatedTopic() as cluster:
        before = cluster.controller
        store = cluster.world.store
        assert store is not None
        epoch = keys.decode_controller(store.items[keys.CONTROLLER].value).epoch
        cluster.brokers[before].kill()
        cluster.wait(lambda: cluster.controller not in (before, -1))
        cluster.run(2.0)
        cores = [cluster.brokers[node].core for node in NODES if node != before]
        active = [core for core in cores if core is not None and core.cluster is not None]
        assert [core.cluster.controller.is_active for core in active if core.cluster].count(True) == 1
        assert keys.decode_controller(store.items[keys.CONTROLLER].value).epoch == epoch + 1


def test_a_broker_that_loses_its_lease_while_it_lives() -> None:
    """It leads nothing under its new registration until it is elected again, with a new leader epoch."""
    with ReplicatedTopic() as cluster:
        assert cluster.world.store is not None
        cluster.send("a")
        epoch = cluster.state.epoch
        cluster.world.store.expire_leases(broker_name(1))
        cluster.send("b")
        cluster.wait(lambda: cluster.state.epoch > epoch)
        _check_equal(cluster, "a", "b")


def test_a_node_id_that_is_registered_twice_is_refused() -> None:
    """DUPLICATE_BROKER_REGISTRATION: the first process keeps the id."""
    with ReplicatedTopic() as cluster:
        store = cluster.world.store
        assert store is not None
        before = store.items[keys.broker(2)].revision
        twin = cluster.brokers[3]
        twin.kill()
        twin.settings = cluster.brokers[2].settings
        twin.start()
        cluster.run(30.0)
        assert store.items[keys.broker(2)].revision == before
        assert cluster.partition(2).role is not Role.NONE


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_wall_clock_jumps(hours: int) -> None:
    """No acknowledgement and no lag depends on the wall clock."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        for node in (1, 3):
            cluster.brokers[node].clock.jump(hours * 3_600_000)
        for index in range(10):
            cluster.send(f"{index}")
            cluster.run(0.5)
        assert cluster.isr == list(NODES)
        _check_equal(cluster, "a", *[f"{index}" for index in range(10)])


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_clocks_run_at_other_rates(rate: float) -> None:
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[1].set_clock_rate(rate)
        cluster.run(20.0)
        cluster.send("b")
        _check_equal(cluster, "a", "b")


def test_a_rolling_restart_under_load() -> None:
    """Orderly stops, one broker after the other: everything that is sent is acknowledged."""
    with ReplicatedTopic() as cluster:
        sent: list[str] = []
        for node in NODES:
            cluster.brokers[node].start_after_end(1.0)
            starts = cluster.brokers[node].starts
            cluster.brokers[node].stop()
            for _ in range(5):
                sent.append(f"{len(sent)}")
                cluster.send(sent[-1])
            cluster.wait(lambda node=node, starts=starts: cluster.brokers[node].starts > starts)  # type: ignore[misc]
            cluster.wait_until_in_sync()
        _check_equal(cluster, *sent)


def test_a_preferred_election_under_load() -> None:
    """KIP-460: leadership goes back to the first replica while producers write."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.restart_after(1, 1.0)
        cluster.wait(lambda: cluster.leader == 2)
        cluster.wait_until_in_sync()
        sending = [
            cluster.spawn(cluster.produce_to(2, f"{index}", timeout_ms=10_000, name=f"{index}"))
            for index in range(5)
        ]
        cluster.run(0.1)
        core = cluster.brokers[cluster.controller].core
        assert core is not None
        assert core.cluster is not None
        core.cluster.controller.prefer_leaders()
        cluster.wait(lambda: cluster.leader == 1)
        cluster.wait(lambda: all(one.done() for one in sending))
        cluster.send("b")
        accepted = [f"{index}" for index, one in enumerate(sending) if one.result() is ErrorCode.NONE]
        cluster.wait_until_in_sync()
        assert set(accepted) <= set(cluster.written(1))
        _check_equal(cluster, "a", "b")


def _registered(cluster: ReplicatedTopic) -> list[int]:
    store = cluster.world.store
    assert store is not None
    return [node for node in NODES if keys.broker(node) in store.items]
