"""A history made in a replicated cluster under random faults, and everything that must hold in the end.

    report = run_cluster_history(seed, schedule, brokers=3)
    assert not report.anomalies

Topics have three replicas and min.insync.replicas=2. Half of them sync each record before it is acknowledged. A
machine loses power only while each of the others keeps another replica with everything (`PowerBudget`). In every
fourth seed one topic has min.insync.replicas=1, and no machine loses records: its leader may be the only one that has
them all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from flintmq.testing.simulation.client import WorldClient
from flintmq.testing.simulation.fault_injection import FaultInjection
from flintmq.testing.simulation.fault_schedule import Schedule, random_schedule
from flintmq.testing.simulation.world import World, WorldStuck
from support.histories.checker import check
from support.simulation.cluster_counts import ClusterCounts
from support.simulation.group_workload import GroupWorkload
from support.simulation.power_budget import PowerBudget
from support.simulation.replica_comparison import differences, leaderless, unhealthy
from support.simulation.replica_invariants import ReplicaInvariants
from support.simulation.workload import HistoryReport, Workload, checked

REPLICATED = {
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "512",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "group.initial.rebalance.delay.ms": "100",
}
FAST, SYNCED = "fast", "synced"
MADE = ("made", 0)
"""Where the processing group writes."""
_HEALED_S = 60.0


def run_cluster_history(
    seed: int,
    schedule: Schedule,
    *,
    brokers: int = 3,
    duration_s: float = 7.0,
    operations_min: int = 300,
    settings: Mapping[str, str] | None = None,
) -> HistoryReport:
    """Let clients work while the faults happen, mend everything, wait until it is healthy, and check the history."""
    with World(seed, brokers=brokers, settings={**REPLICATED, **(settings or {})}) as world:
        assert world.store is not None
        observed, budget = ClusterCounts(world.store), PowerBudget(world.store)
        invariants = ReplicaInvariants(world, world.store)
        for node in world.brokers.values():
            node.may_lose_records = (
                (lambda: False) if _leads_alone(seed) else partial(budget.take, node.node_id)
            )
        world.start()
        places = _create_topics(world)
        budget.synced_topics = {id for id, name in observed.topic_ids().items() if name == SYNCED}
        injection = FaultInjection(world)
        injection.schedule(schedule)
        workload = Workload(
            world,
            places,
            world.timeline.now_s + duration_s,
            operations_min=operations_min,
            checks_epochs=True,
        )
        readers = GroupWorkload(workload, "readers", places)
        processors = GroupWorkload(workload, "processors", [(FAST, 0), (SYNCED, 1)])
        with invariants.watching():
            work = world.clients.spawn(_work(workload, readers, processors))
            world.run_for(duration_s)
            injection.mend()
            _wait_until_led(world)
            world.run_until(work)
            _wait_until_healthy(world)
        for committed_only in (False, True):
            read = workload.read_all(committed_only=committed_only, places=[*places, MADE])
            world.run_until(world.clients.spawn(read))
        for group in (readers, processors):
            world.run_until(world.clients.spawn(group.read_offsets()))
        anomalies: list[object] = [
            *invariants.breaches,
            *check(workload.recorder.history),
            *differences(world),
        ]
        counts: Counter[str] = world.counts + observed.counts
        counts["uncertain"] = world.store.uncertain_count
        counts["truncations"] = sum(node.truncations for node in world.brokers.values())
        counts["power losses"] = sum(node.boots for node in world.brokers.values())
        counts["operations"] = len(workload.recorder.history)
        return HistoryReport(
            seed, schedule, anomalies, workload.recorder.history, world.trace.digest(), counts
        )


async def _work(workload: Workload, readers: GroupWorkload, processors: GroupWorkload) -> None:
    await asyncio.gather(
        workload.run(writers=2, transactors=2, readers=3, plain=1),
        readers.run(2),
        processors.run(2, target=MADE),
    )


def _leads_alone(seed: int) -> bool:
    return seed % 4 == 1


def _create_topics(world: World) -> list[tuple[str, int]]:
    admin = WorldClient(world, "admin")
    places = []
    synced = {"flush.messages": "1"}
    fast = {"min.insync.replicas": "1"} if _leads_alone(world.seed) else {}
    for topic, count, configs in ((FAST, 2, fast), (SYNCED, 2, synced), (MADE[0], 1, {})):
        created = admin.create_topic(
            topic, partitions=count, replication_factor=3, configs={"min.insync.replicas": "2", **configs}
        )
        world.run_until(world.clients.spawn(created))
        places += [(topic, index) for index in range(count)]
    return [place for place in places if place != MADE]


def _wait_until_led(world: World) -> None:
    _wait(world, leaderless)


def _wait_until_healthy(world: World) -> None:
    _wait(world, unhealthy)


def _wait(world: World, problems: Callable[[World], list[str]]) -> None:
    deadline_s = world.timeline.now_s + _HEALED_S
    while found := problems(world):
        if world.timeline.now_s > deadline_s:
            raise WorldStuck(f"seed {world.seed}: not healthy after {_HEALED_S} s: {'; '.join(found)}")
        world.run_for(0.5)


def explore_cluster(seed: int, *, brokers: int = 3, duration_s: float = 7.0, count: int = 5) -> HistoryReport:
    """Run a seed with random faults; AssertionError with the shrunk schedule if something is wrong."""
    schedule = random_schedule(seed, brokers=list(range(1, brokers + 1)), duration_s=duration_s, count=count)
    return checked(
        seed,
        schedule,
        lambda faults: run_cluster_history(seed, faults, brokers=brokers, duration_s=duration_s),
    )
