"""Kafka's offset checkpoint files: one number for each partition, as text. Pure.

A version line, a count line, then `topic partition offset` lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.errors import CorruptionError
from flintmq.records.topic_partition import TopicPartition

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
FIRST_DIRTY = "cleaner-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"


def encode(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> dict[TopicPartition, int]:
    try:
        version, count, *lines, rest = data.decode().split("\n")
        rows = [line.split(" ") for line in lines]
        # A last line that does not end may have lost digits.
        if version != "0" or len(rows) != int(count) or rest:
            raise ValueError("wrong version or count")
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError as error:
        raise CorruptionError(f"The offset checkpoint makes no sense: {error}.") from None
