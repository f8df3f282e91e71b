"""OffsetForLeaderEpoch: where an epoch ended (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from support.broker.single_broker import SingleBroker

NOW = 1_700_000_000_000


def end_of(
    broker: SingleBroker, epoch: int, *, topic: str = "t", index: int = 0, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    """Error, epoch and end offset."""
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=index, leader_epoch=epoch, current_leader_epoch=current
    )
    message = OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])],
    )
    [answer] = broker.ask(message, OffsetForLeaderEpochResponse, version).topics
    [partition] = answer.partitions
    assert (answer.topic, partition.partition) == (topic, index)
    return partition.error_code, partition.leader_epoch, partition.end_offset


@pytest.fixture
def history(broker: SingleBroker) -> SingleBroker:
    """Epoch 1 holds offsets 0–1, epoch 4 offset 2; the leader is in epoch 6 and has written nothing in it."""
    broker.create("t")
    partition = broker.partition("t")
    for epoch, count in ((1, 2), (4, 1)):
        partition.leader_epoch = epoch
        for _ in range(count):
            broker.append("t", NOW)
    partition.leader_epoch = 6
    return broker


@pytest.mark.parametrize("version", range(2, 5))
def test_the_current_epoch_ends_with_the_log(broker: SingleBroker, version: int) -> None:
    broker.create("t")
    assert end_of(broker, 0, version=version) == (0, 0, 0)
    broker.append("t", NOW, NOW)
    assert end_of(broker, 0, version=version) == (0, 0, 2)


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        (0, (0, 0)),
        (1, (1, 2)),
        (3, (1, 2)),
        (4, (4, 3)),
        (5, (4, 3)),
        (6, (6, 3)),
        (7, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_the_largest_known_epoch_not_newer_is_told(
    history: SingleBroker, asked: int, known: tuple[int, int]
) -> None:
    assert end_of(history, asked) == (0, *known)


def test_a_client_with_another_leader_epoch_is_fenced(history: SingleBroker) -> None:
    assert end_of(history, 1, current=6) == (0, 1, 2)
    assert end_of(history, 1, current=5) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(history, 1, current=7) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_an_unknown_partition_is_told(history: SingleBroker) -> None:
    assert end_of(history, 1, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of(history, 1, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
