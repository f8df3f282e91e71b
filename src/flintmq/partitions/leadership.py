"""Whether this broker may answer for a partition, and what it knows of leader epochs (KIP-101, KIP-320).

One rule for every API that names a partition and the epoch its client believes in. Pure decisions over what
`Partitions` and the image hold.
"""

from __future__ import annotations

from flintmq.errors import ErrorCode, LogOffline, RequestError
from flintmq.metadata.image import ClusterImage
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import Partition


def led_partition(
    partitions: LocalPartitions,
    image: ClusterImage,
    topic: str,
    index: int,
    *,
    current_leader_epoch: int = -1,
) -> Partition:
    """The partition, if it is led here in the epoch that the client knows (-1: it knows none)."""
    partition = partitions.get(topic, index)
    if partition is None:
        known = image.topics.get(topic)
        if known is not None and 0 <= index < len(known.partitions):
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not led by this broker."
            )
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist.")
    if partition.log.offline is not None:
        raise LogOffline(partition.log.offline)
    if current_leader_epoch not in (-1, partition.leader_epoch):
        if current_leader_epoch < partition.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, "The client knows an older leader epoch.")
        raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, "The client knows a newer leader epoch.")
    return partition


def epoch_of_start(partition: Partition) -> int:
    """The epoch of the first record, or the one in which it would be written; -1 if it is not known."""
    log = partition.log
    return partition.leader_epoch if log.epochs.latest < 0 else log.epochs.epoch_of(log.start_offset)


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest known epoch ≤ `epoch` and the offset after its last record; (-1, -1) if undefined.

    A log remembers an epoch from its first record on; the leader's own begins at the end of the log before.
    """
    log = partition.log
    if epoch == partition.leader_epoch:
        return epoch, log.end_offset
    if log.epochs.latest < epoch < partition.leader_epoch:
        return (log.epochs.latest if log.epochs.latest >= 0 else epoch), log.end_offset
    return log.epochs.end_offset_of(epoch, log.end_offset)
