"""Retention, compaction and the scrub by themselves: what begins when, and what a failure costs (Z7, S5, R5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.maintenance.scheduler import MaintenanceTask, PartitionTask, TaskAction, TaskState
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.segment import LOG
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

PLENTY = 1 << 30
HOUR_S = 3600.0
Start = Callable[..., SingleBroker]


@pytest.fixture
def start() -> Iterator[Start]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        brokers: list[SingleBroker] = []

        def begin(settings: Mapping[str, str] | None = None) -> SingleBroker:
            brokers.append(SingleBroker(loop, settings or {}, SimulatedDisk(seed=SEED)))
            return brokers[-1]

        yield begin
        for broker in brokers:
            loop.run_until_complete(broker.services.maintenance.close())
            broker.close()


def append(broker: SingleBroker, topic: str, count: int, key: bytes = b"k") -> None:
    partition = broker.partition(topic)
    for number in range(count):
        now_ms = broker.loop.clock.now_ms()
        batch = memoryview(bytearray(build_batch([(key, b"%d" % number, now_ms, ())])))
        partition.append(batch, partition.check(batch, now_ms), now_ms)
    broker.loop.run_until_idle()


def tick(broker: SingleBroker, seconds: float = 0.0) -> None:
    """The time passes, and housekeeping comes by once."""

    async def come_by() -> None:
        broker.services.maintenance.tick()

    broker.loop.advance(seconds)
    broker.loop.run_until_complete(come_by())
    broker.loop.run_until_idle()


def test_retention_comes_by_when_its_interval_is_over(start: Start) -> None:
    broker = start({"log.retention.check.interval.ms": "60000"})
    broker.create("t", retention_ms="1000", segment_bytes="300")
    append(broker, "t", 10)
    log = broker.partition("t").log
    tick(broker, 59)
    assert log.start_offset == 0
    tick(broker, 1)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (10, 10, 1)
    assert len([name for name in broker.disk.list(log.directory) if name.endswith(LOG)]) == 1
    with pytest.raises(RequestError) as refused:
        reader.read(log, 9, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_start_that_retention_moved_is_found_again_by_the_next_process(start: Start) -> None:
    broker = start()
    broker.create("t", retention_bytes="500", segment_bytes="300", retention_ms="-1")
    append(broker, "t", 20)
    tick(broker, HOUR_S)
    begins = broker.partition("t").log.start_offset
    assert begins > 0
    again = SingleBroker(broker.loop, {}, broker.disk.crash())
    assert again.partition("t").log.start_offset == begins
    again.close()


def test_compaction_takes_every_log_that_is_worth_it_one_after_the_other(start: Start) -> None:
    broker = start({"log.cleaner.backoff.ms": "15000"})
    for name in ("a", "b"):
        broker.create(name, cleanup_policy="compact", segment_bytes="300")
        append(broker, name, 20)
    tick(broker, 14)
    assert broker.partition("a").log.first_dirty_offset == 0
    tick(broker, 1)
    for name in ("a", "b"):
        log = broker.partition(name).log
        assert log.first_dirty_offset == log.active.base_offset > 0


def test_without_the_cleaner_nothing_is_compacted_by_itself_but_on_demand_it_is(start: Start) -> None:
    broker = start({"log.cleaner.enable": "false"})
    broker.create("t", cleanup_policy="compact", segment_bytes="300")
    append(broker, "t", 20)
    tick(broker, HOUR_S)
    assert broker.partition("t").log.first_dirty_offset == 0
    task = on_demand(broker, TaskAction.COMPACT)
    assert broker.partition("t").log.first_dirty_offset == 20
    assert (task.records_before, task.records_after) == (20, 1)


def on_demand(broker: SingleBroker, action: TaskAction) -> PartitionTask:
    maintenance, partition = broker.services.maintenance, broker.partition("t")

    async def begin() -> MaintenanceTask:
        return maintenance.start(action, "t", [partition])

    task = broker.loop.run_until_complete(begin())
    broker.loop.run_until_idle()
    assert task.is_over
    (part,) = task.partitions
    return part


def test_a_log_that_fails_does_not_keep_the_others_from_their_turn_and_is_tried_again(start: Start) -> None:
    broker = start({"log.cleaner.backoff.ms": "1000"})
    for name in ("a", "b"):
        broker.create(name, cleanup_policy="compact", segment_bytes="300")
        append(broker, name, 20)
    broken = broker.disk

    def observe(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log.cleaned"):
            broken.observer = None
            broken.fail("write")

    broken.observer = observe
    tick(broker, 1)
    done = [broker.partition(name).log.first_dirty_offset > 0 for name in ("a", "b")]
    assert sorted(done) == [False, True]
    assert all(broker.partition(name).log.offline is None for name in ("a", "b"))
    tick(broker, 1)
    assert all(broker.partition(name).log.first_dirty_offset > 0 for name in ("a", "b"))


def test_a_damaged_log_is_given_up_until_somebody_asks_for_it(start: Start) -> None:
    broker = start({"log.cleaner.backoff.ms": "1000"})
    broker.create("t", cleanup_policy="compact", segment_bytes="300")
    append(broker, "t", 20)
    log = broker.partition("t").log
    broker.disk.flip(log.segments[0].path(LOG), 65)
    tick(broker, 1)
    cleaner = broker.services.maintenance.cleaner
    assert cleaner.gave_up(broker.partition("t"))
    counted = log.counters.compactions
    tick(broker, 1)
    assert log.counters.compactions == counted
    part = on_demand(broker, TaskAction.COMPACT)
    assert part.state is TaskState.FAILED
    assert "CRC" in part.error
    broker.disk.flip(log.segments[0].path(LOG), 65)
    assert on_demand(broker, TaskAction.COMPACT).state is TaskState.DONE
    assert not cleaner.gave_up(broker.partition("t"))


def test_the_scrub_reads_at_its_rate_and_refuses_what_it_finds_damaged(start: Start) -> None:
    broker = start({"flint.scrub.interval.ms": "10000", "flint.scrub.bytes.per.second": "200"})
    broker.create("t", segment_bytes="300")
    append(broker, "t", 20)
    log = broker.partition("t").log
    position, header = list(log.segments[3].walk(0))[1]
    broker.disk.flip(log.segments[3].path(LOG), position + 65)
    tick(broker)
    tick(broker, 9)
    assert log.counters.scrubbed_bytes == 0
    tick(broker, 1)
    assert 200 <= log.counters.scrubbed_bytes < 500
    for _ in range(20):
        tick(broker, 1)
    assert log.corrupt == [CorruptRange(header.base_offset, header.last_offset + 1)]
    assert log.counters.scrubbed_bytes >= log.size - log.active.size - header.size


def test_a_segment_that_the_disk_does_not_give_is_passed_over(start: Start) -> None:
    broker = start({"flint.scrub.interval.ms": "1000"})
    broker.create("t", segment_bytes="300")
    append(broker, "t", 20)
    log = broker.partition("t").log
    tick(broker)
    broker.disk.fail("read")
    tick(broker, 1)
    assert log.corrupt == []
    assert 0 < log.counters.scrubbed_bytes < log.size
    assert log.offline is None


def test_a_log_that_is_written_to_while_it_is_verified_is_not_called_damaged(start: Start) -> None:
    broker = start()
    broker.create("t", segment_bytes="300")
    append(broker, "t", 20)
    maintenance, partition = broker.services.maintenance, broker.partition("t")

    async def verify_and_write() -> None:
        task = maintenance.start(TaskAction.VERIFY, "t", [partition])
        while not task.is_over:
            now_ms = broker.loop.clock.now_ms()
            batch = memoryview(bytearray(build_batch([(b"k", b"more", now_ms, ())])))
            partition.append(batch, partition.check(batch, now_ms), now_ms)
            await asyncio.sleep(0)

    broker.loop.run_until_complete(verify_and_write())
    assert partition.log.corrupt == []


@pytest.mark.parametrize("action", list(TaskAction))
def test_whatever_is_asked_of_a_log_that_is_offline_fails_with_its_reason(
    start: Start, action: TaskAction
) -> None:
    broker = start()
    broker.create("t", cleanup_policy="compact,delete")
    append(broker, "t", 3)
    broker.partition("t").log.segments.clear()
    broker.partition("t").log.go_offline("the disk is gone")
    part = on_demand(broker, action)
    assert (part.state, "the disk is gone" in part.error) == (TaskState.FAILED, True)


def test_a_stop_ends_what_is_under_way(start: Start) -> None:
    broker = start()
    broker.create("t", cleanup_policy="compact", segment_bytes="300")
    append(broker, "t", 40)
    maintenance, partition = broker.services.maintenance, broker.partition("t")

    async def begin_and_stop() -> TaskState:
        task = maintenance.start(TaskAction.COMPACT, "t", [partition])
        for _ in range(10):
            await asyncio.sleep(0)
        await maintenance.close()
        assert task.is_over
        return task.partitions[0].state

    assert broker.loop.run_until_complete(begin_and_stop()) is TaskState.FAILED


def test_a_clock_that_is_set_back_does_not_stop_the_upkeep(start: Start) -> None:
    broker = start({"log.retention.check.interval.ms": "1000"})
    broker.create("t", retention_bytes="500", segment_bytes="300", retention_ms="-1")
    append(broker, "t", 20)
    broker.loop.clock._start_ms -= 86_400_000
    tick(broker)
    assert broker.partition("t").log.start_offset > 0
