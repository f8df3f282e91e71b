"""When records become visible, and who is told (B5, R4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.errors import FlintError
from flintmq.partitions.partition import Partition
from flintmq.records.record import build_batch
from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.log import Appended
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker
from support.cli.manual import ManualExecutor


class World:
    """A partition whose fsyncs happen when the test says so."""

    def __init__(self, broker: SingleBroker) -> None:
        self.loop = broker.loop
        self.disk = broker.disk
        self.executor = ManualExecutor()
        log = broker.partition("t").log
        self.partition = Partition(log, clock=self.loop.clock, timers=self.loop, executor=self.executor)
        self.partition.lead(node_id=1, leader_epoch=0, replicas=[1], isr=[1])
        self.told: list[tuple[int, FlintError | None]] = []

    def append(self, value: bytes = b"value") -> Appended:
        now_ms = self.loop.clock.now_ms()
        batch = memoryview(bytearray(build_batch([(None, value, now_ms, ())])))
        return self.partition.append(batch, self.partition.check(batch, now_ms), now_ms)

    def append_and_wait(self) -> int:
        last = self.append().last_offset
        self.partition.when_visible(last, lambda failure: self.told.append((last, failure)))
        return last


class Reader:
    """Looks whenever it is told of `min_bytes`, as a fetch does, and goes on waiting."""

    def __init__(self, partition: Partition, min_bytes: int = 1) -> None:
        self.partition = partition
        self.min_bytes = min_bytes
        self.wakes = 0
        self.offset = partition.log.high_watermark
        self.arrived = 0
        partition.park(self)

    def records_arrived(self, partition: Partition, size: int) -> None:
        self.wakes += 1
        self.arrived += size
        if self.arrived >= self.min_bytes:
            self.arrived = 0
            if reader.read(
                partition.log, self.offset, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True
            ):
                self.offset = partition.log.high_watermark


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        started = SingleBroker(loop, {}, SimulatedDisk(seed=SEED))
        yield started
        started.close()


@pytest.fixture
def plain(broker: SingleBroker) -> World:
    broker.create("t")
    return World(broker)


@pytest.fixture
def durable(broker: SingleBroker) -> World:
    broker.create("t", flush_messages="1")
    return World(broker)


def test_an_append_is_visible_at_once_and_wakes_readers_on_the_next_turn(plain: World) -> None:
    reader = Reader(plain.partition)
    appended = plain.append()
    assert plain.partition.is_visible(appended.last_offset)
    assert reader.wakes == 0
    plain.loop.run_until_idle()
    assert (reader.wakes, reader.offset) == (1, 1)


def test_a_burst_of_appends_wakes_once(plain: World) -> None:
    reader = Reader(plain.partition)
    for _ in range(100):
        plain.append()
    plain.loop.run_until_idle()
    assert (reader.wakes, reader.offset) == (1, 100)


def test_a_reader_that_left_is_not_woken(plain: World) -> None:
    reader = Reader(plain.partition)
    plain.append()
    plain.partition.unpark(reader)
    plain.loop.run_until_idle()
    assert reader.wakes == 0


def test_with_flush_messages_1_the_fsync_makes_visible(durable: World) -> None:
    reader = Reader(durable.partition)
    last = durable.append_and_wait()
    durable.loop.run_until_idle()
    assert not durable.partition.is_visible(last)
    assert (durable.told, reader.wakes) == ([], 0)
    durable.executor.step()
    assert durable.told == [(last, None)]
    durable.loop.run_until_idle()
    assert reader.offset == 1


@pytest.mark.parametrize("min_bytes", [1, 100])
def test_no_flush_is_forgotten_by_readers(durable: World, min_bytes: int) -> None:
    """What a flush makes visible was appended while an earlier flush ran, and perhaps counted with it."""
    reader = Reader(durable.partition, min_bytes)
    durable.append_and_wait()
    durable.append_and_wait()
    durable.executor.step()
    durable.loop.run_until_idle()
    assert reader.offset == 1
    durable.append_and_wait()
    for visible in (2, 3):
        durable.executor.step()
        durable.loop.run_until_idle()
        assert reader.offset == visible
    assert [offset for offset, _ in durable.told] == [0, 1, 2]


def test_one_fsync_serves_all_that_wait(durable: World) -> None:
    durable.append_and_wait()
    for _ in range(50):
        durable.append_and_wait()
    durable.executor.step()
    assert len(durable.told) == 1
    durable.executor.step()
    assert len(durable.told) == 51
    assert len(durable.executor) == 0


def test_a_failed_fsync_is_told_to_all_that_wait_and_to_readers(durable: World) -> None:
    reader = Reader(durable.partition)
    last = durable.append_and_wait()
    durable.disk.fail("sync")
    durable.executor.step()
    assert [offset for offset, failure in durable.told if failure] == [last]
    assert reader.wakes == 1
    assert durable.partition.log.offline is not None


def test_who_begins_to_wait_for_a_log_that_is_offline_is_told_so(durable: World) -> None:
    durable.append()
    durable.disk.fail("sync")
    durable.executor.step()
    durable.partition.when_visible(0, lambda failure: durable.told.append((0, failure)))
    durable.loop.run_until_idle()
    assert [bool(failure) for _, failure in durable.told] == [True]


def test_no_longer_waiting_for_fsyncs_makes_everything_visible(durable: World) -> None:
    reader = Reader(durable.partition, min_bytes=1000)
    last = durable.append_and_wait()
    durable.partition.configure(TopicConfig())
    assert durable.told == [(last, None)]
    durable.loop.run_until_idle()
    assert reader.offset == 1


def test_nobody_waits_in_vain_for_a_partition_that_goes(durable: World) -> None:
    reader = Reader(durable.partition)
    last = durable.append_and_wait()
    durable.partition.close()
    assert [offset for offset, failure in durable.told if failure] == [last]
    assert reader.wakes == 1
    assert durable.partition.deleted
