"""Damage on the disk of one replica of a `ReplicatedTopic`, how it is found, and how a repair is awaited."""

from __future__ import annotations

import asyncio

from flintmq.partitions.maintenance.scrub import ScrubChunk, verify_log
from flintmq.partitions.partition import Partition
from flintmq.storage.segment import LOG, segment_index
from support.simulation.replica_comparison import differences, unhealthy
from support.simulation.replicated_topic import ReplicatedTopic

_IN_RECORDS = 65


def roll(cluster: ReplicatedTopic, node: int) -> None:
    """Seal the active segment of a replica."""
    cluster.partition(node).log.roll(cluster.brokers[node].clock.now_ms())


def damage(cluster: ReplicatedTopic, node: int, offset: int, *, byte: int = _IN_RECORDS) -> None:
    """Flip a bit in the batch that holds `offset`; in its records, unless another `byte` of the batch is given."""
    log = cluster.partition(node).log
    segment = log.segments[segment_index(log.segments, offset)]
    found = segment.locate(log.disk, offset)
    assert found is not None
    cluster.brokers[node].disk.flip(segment.path(LOG), found[0] + byte)


def find_damage(cluster: ReplicatedTopic, node: int) -> None:
    """Have a broker verify its whole log, as `flintmq log verify` does; return when damage is known."""
    begin_verification(cluster, node)
    cluster.wait(lambda: bool(cluster.partition(node).log.corrupt))


def begin_verification(cluster: ReplicatedTopic, node: int) -> asyncio.Task[ScrubChunk]:
    core, process = cluster.brokers[node].core, cluster.brokers[node].process
    assert core is not None
    assert process is not None
    partition: Partition = cluster.partition(node)
    return process.spawn(verify_log(partition, core.services.executor, lambda done, total: None))


def wait_until_repaired(cluster: ReplicatedTopic, node: int) -> None:
    cluster.wait(lambda: cluster.brokers[node].core is not None and not cluster.partition(node).log.corrupt)


def check_identical(cluster: ReplicatedTopic) -> None:
    """All replicas are in sync, and hold the same bytes."""
    cluster.wait(lambda: not unhealthy(cluster.world))
    assert not differences(cluster.world)


def repaired_ranges(cluster: ReplicatedTopic, node: int) -> int:
    core = cluster.brokers[node].core
    assert core is not None
    return core.counters.logs.repaired_ranges
