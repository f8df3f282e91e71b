"""What the replicas of a cluster must be like once faults have stopped: led, in sync, and the same bytes."""

from __future__ import annotations

import hashlib

from flintmq.metadata import keys
from flintmq.metadata.keys import PartitionValue
from flintmq.records.uuids import encode_uuid
from flintmq.storage.log import Log
from flintmq.storage.segment import LOG
from flintmq.testing.simulation.world import World


def partitions(world: World) -> dict[str, PartitionValue]:
    """Return the state of each partition, by its key."""
    assert world.store is not None
    return {
        key: keys.decode_partition(item.value)
        for key, item in world.store.items.items()
        if key.startswith(keys.PARTITIONS)
    }


def leaderless(world: World) -> list[str]:
    """Return which brokers are down and which partitions have too few replicas to be written to."""
    return [f"{node.name} is down" for node in world.brokers.values() if not node.is_up] + [
        f"{key} is {value}"
        for key, value in partitions(world).items()
        if value.leader < 0 or len(value.isr) < min(2, len(value.replicas)) or value.elr
    ]


def unhealthy(world: World) -> list[str]:
    """Return what is missing: brokers that are down, partitions without a leader or a full ISR, lagging replicas."""
    found = [f"{node.name} is down" for node in world.brokers.values() if not node.is_up]
    if found:
        return found
    for key, value in partitions(world).items():
        if value.leader < 0 or sorted(value.isr) != sorted(value.replicas) or value.elr:
            found.append(f"{key} is {value}")
            continue
        logs = _logs(world, key, value)
        ends = {node: (log.end_offset, log.high_watermark) for node, log in logs.items()}
        if len(ends) < len(value.replicas) or len({number for pair in ends.values() for number in pair}) > 1:
            found.append(f"{key} ends at {ends}")
    return found


def differences(world: World) -> list[str]:
    """Return which replicas differ in what they hold; `unhealthy` must be empty."""
    found = []
    for key, value in partitions(world).items():
        logs = _logs(world, key, value)
        if any("compact" in log.config.cleanup_policy for log in logs.values()):
            # Each replica compacts when it likes.
            continue
        hashes = {node: _digest(world, node, log) for node, log in logs.items()}
        if len(set(hashes.values())) > 1:
            found.append(f"the replicas of {key} differ: {hashes}")
    return found


def _logs(world: World, key: str, value: PartitionValue) -> dict[int, Log]:
    _, _, topic_id, index = key.split("/")
    found = {}
    for node in value.replicas:
        core = world.brokers[node].core
        assert core is not None
        names = [
            topic.name for topic in core.metadata.image.topics.values() if encode_uuid(topic.id) == topic_id
        ]
        log = core.log_dir.logs.get((names[0], int(index))) if names else None
        if log is not None:
            found[node] = log
    return found


def _digest(world: World, node: int, log: Log) -> str:
    """Segments may roll at different offsets: the bytes of all of them count."""
    disk = world.brokers[node].disk
    digest = hashlib.blake2b(digest_size=8)
    for segment in (one for one in log.segments if one.size):
        file = disk.open(segment.path(LOG), writable=False)
        digest.update(file.pread(segment.size, 0))
        file.close()
    return digest.hexdigest()
