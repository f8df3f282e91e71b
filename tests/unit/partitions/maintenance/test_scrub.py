"""Reading a log in pieces while compaction changes it: what is sound stays so, what is damaged is found (S5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.partitions.maintenance.scheduler import TaskAction, TaskState
from flintmq.partitions.maintenance.scrub import ScrubPosition, scrub_piece
from flintmq.partitions.partition import Partition
from flintmq.records.batch import HEADER_SIZE
from flintmq.records.record import build_batch
from flintmq.storage.segment import LOG
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

PIECE = 100
"""Less than a batch: one is read at a time."""


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        broker = SingleBroker(loop, {}, SimulatedDisk(seed=SEED))
        yield broker
        broker.close()


def filled(broker: SingleBroker, keys: bytes) -> Partition:
    """A batch for each key, in one sealed segment and an empty one behind it."""
    broker.create("t", cleanup_policy="compact")
    partition, now_ms = broker.partition("t"), broker.loop.clock.now_ms()
    for key in keys:
        batch = memoryview(bytearray(build_batch([(bytes([key]), b"v" * 20, now_ms, ())])))
        partition.append(batch, partition.check(batch, now_ms), now_ms)
    partition.log.roll(now_ms)
    broker.loop.run_until_idle()
    return partition


def overwrite(broker: SingleBroker, partition: Partition, position: int, data: bytes) -> None:
    file = broker.disk.open(f"{partition.log.directory}/{0:020d}{LOG}")
    file.pwrite(data, position)
    file.close()


def read_on(broker: SingleBroker, partition: Partition, place: ScrubPosition) -> bool:
    """Whether there was more."""
    log, executor = partition.log, broker.services.executor
    return broker.loop.run_until_complete(scrub_piece(log, place, PIECE, executor)) is not None


def test_a_segment_that_was_compacted_between_two_pieces_is_begun_again(broker: SingleBroker) -> None:
    partition = filled(broker, b"aaaabcd")
    place = ScrubPosition()
    assert read_on(broker, partition, place)
    assert place.position > 0

    async def compact() -> TaskState:
        task = broker.services.maintenance.start(TaskAction.COMPACT, "t", [partition])
        await task.over.wait()
        return task.partitions[0].state

    assert broker.loop.run_until_complete(compact()) is TaskState.DONE
    while read_on(broker, partition, place):
        pass
    assert partition.log.corrupt == []


def test_where_no_batch_is_only_what_follows_is_refused(broker: SingleBroker) -> None:
    partition = filled(broker, b"abcdef")
    batch_bytes = partition.log.size // 6
    overwrite(broker, partition, 3 * batch_bytes, bytes(HEADER_SIZE))
    place = ScrubPosition()
    while read_on(broker, partition, place):
        pass
    assert [tuple(bad) for bad in partition.log.corrupt] == [(3, 6)]


def test_a_batch_that_repeats_offsets_of_an_earlier_piece_is_found(broker: SingleBroker) -> None:
    partition = filled(broker, b"abcdef")
    batch_bytes = partition.log.size // 6
    overwrite(broker, partition, 4 * batch_bytes, (1).to_bytes(8, "big"))
    place = ScrubPosition()
    while read_on(broker, partition, place):
        pass
    assert [tuple(bad) for bad in partition.log.corrupt] == [(4, 6)]
