"""Whether this broker may serve a partition, and what it knows of leader epochs (KIP-101, KIP-320).

One rule for every API that names a partition and the leader epoch its client knows, and one for consumers, which may
read from followers too (KIP-392). Pure decisions over what `LocalPartitions` and the image hold.
"""

from __future__ import annotations

from typing import Final

from flintmq.errors import ErrorCode, LogOffline, RequestError
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import NO_LEADER, Partition, Role

NO_LEADER_EPOCH: Final = -1


def led_partition(
    partitions: LocalPartitions, topic: str | bytes, index: int, leader_epoch: int = NO_LEADER_EPOCH
) -> Partition:
    """Return a partition by its topic's name or id. Raise unless it is led here, in the client's leader epoch."""
    # Looked up here and not by `get`: produce and fetch come this way for each partition.
    partition = (
        partitions.by_name.get((topic, index))
        if isinstance(topic, str)
        else partitions.by_id.get((topic, index))
    )
    if partition is None or partition.role is not Role.LEADER:
        raise _not_led(partitions, topic, index)
    _check(partition, leader_epoch)
    return partition


def readable_partition(
    partitions: LocalPartitions, topic: str | bytes, index: int, leader_epoch: int = NO_LEADER_EPOCH
) -> Partition:
    """Return a partition that is led or followed here (KIP-392). Raise as `led_partition` does."""
    partition = (
        partitions.by_name.get((topic, index))
        if isinstance(topic, str)
        else partitions.by_id.get((topic, index))
    )
    if partition is None or partition.role is Role.NONE or partition.leader == NO_LEADER:
        raise _not_led(partitions, topic, index)
    _check(partition, leader_epoch)
    return partition


def _check(partition: Partition, leader_epoch: int) -> None:
    if partition.log.offline is not None:
        raise LogOffline(partition.log.offline)
    if leader_epoch != NO_LEADER_EPOCH and leader_epoch != partition.leader_epoch:
        if leader_epoch < partition.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, "The client knows an older leader epoch.")
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, "The client knows a newer leader epoch.")


def _not_led(partitions: LocalPartitions, topic: str | bytes, index: int) -> RequestError:
    image = partitions.image
    if isinstance(topic, str):
        name, known = topic, image.topics.get(topic)
    else:
        known = image.topics_by_id.get(topic)
        if known is None:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        name = known.name
    if known is not None and 0 <= index < len(known.partitions):
        return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is not led by this broker.")
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} does not exist.")


def current_leader(partitions: LocalPartitions, topic: str | bytes, index: int) -> tuple[int, int] | None:
    """Return the leader of a partition and its epoch, as far as the image knows them (KIP-951)."""
    image = partitions.image
    known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    state = known.partitions[index]
    return state.leader, state.epoch


def epoch_of_start(partition: Partition) -> int:
    """Return the epoch of the first record, or the one in which it would be written; -1 if it is not known."""
    log = partition.log
    return partition.leader_epoch if log.epochs.latest < 0 else log.epochs.epoch_of(log.start_offset)


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """Return the largest known epoch ≤ `epoch` and the offset after its last record; (-1, -1) if undefined.

    A log remembers an epoch from its first record on; the leader's own begins at the end of the log before.
    """
    log = partition.log
    if epoch == partition.leader_epoch:
        return epoch, log.end_offset
    if log.epochs.latest < epoch < partition.leader_epoch:
        return (log.epochs.latest if log.epochs.latest >= 0 else epoch), log.end_offset
    return log.epochs.end_offset_of(epoch, log.end_offset)
