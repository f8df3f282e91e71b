"""Passes of compaction carried out for a broker: what is put in place, and what a disturbed pass leaves (Z7, R5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from flintmq.effects import read_file
from flintmq.errors import CorruptionError, LogOffline
from flintmq.partitions.maintenance.log_cleaner import CompactionResult, LogCleaner
from flintmq.partitions.maintenance.segment_rewrite import SegmentRewriteError
from flintmq.partitions.partition import Partition
from flintmq.partitions.record_deletion import delete_records
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.compaction.swap import CLEANED, SWAP_FILE
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.segment import LOG
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker
from support.wire.batches import split
from support.wire.wire import records_in

PLENTY = 1 << 30


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        started = SingleBroker(loop, {}, SimulatedDisk(seed=SEED, journaling=False))
        yield started
        started.disk.observer = None
        started.close()


class Bench:
    def __init__(self, broker: SingleBroker, **configs: str) -> None:
        self.broker = broker
        self.disk = broker.disk
        self.loop = broker.loop
        settings: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": "400", **configs}
        broker.create("t", **settings)

    @property
    def partition(self) -> Partition:
        return self.broker.partition("t")

    @property
    def cleaner(self) -> LogCleaner:
        return self.broker.services.maintenance.cleaner

    def append(self, key: bytes, value: bytes | None, **options: Any) -> None:
        now_ms = self.loop.clock.now_ms()
        batch = memoryview(bytearray(build_batch([(key, value, now_ms, ())], **options)))
        self.partition.append(batch, self.partition.check(batch, now_ms), now_ms)
        self.loop.run_until_idle()

    def fill(self, count: int = 30) -> None:
        for number in range(count):
            self.append(b"k%d" % (number % 3), b"%d" % number)

    def compact(self, *, forced: bool = True) -> CompactionResult:
        return self.loop.run_until_complete(self.cleaner.compact(self.partition, forced=forced))

    def pairs(self) -> list[tuple[bytes | None, bytes | None]]:
        log = self.partition.log
        found: list[tuple[bytes | None, bytes | None]] = []
        offset = log.start_offset
        while (
            part := reader.read(log, offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
        ) is not None:
            data = part.read()
            found += [(one.key, one.value) for one in records_in(data) if one.offset >= log.start_offset]
            offset = split(data)[-1][0].last_offset + 1
        return found

    def left_behind(self) -> list[str]:
        names = self.disk.list(self.partition.log.directory)
        return [name for name in names if name.endswith((CLEANED, ".tmp")) or name == SWAP_FILE]

    def at(self, operation: str, ending: str, action: Callable[[], object]) -> None:
        """Do something else once, right before the disk is changed so."""

        def observe(found: str, path: str) -> None:
            if found == operation and path.endswith(ending):
                self.disk.observer = None
                action()

        self.disk.observer = observe


NEWEST = [(b"k0", b"27"), (b"k1", b"28"), (b"k2", b"29")]


def test_only_the_newest_of_each_key_is_left_and_the_log_says_so(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    done = bench.compact()
    log = bench.partition.log
    assert bench.pairs() == NEWEST
    assert (done.records_before, done.records_after, done.passes) == (30, 3, 1)
    assert log.first_dirty_offset == log.end_offset == 30
    assert bench.left_behind() == []
    written = offset_checkpoint.decode(read_file(bench.disk, f"data/{offset_checkpoint.FIRST_DIRTY}"))
    assert written["t", 0] == 30


def test_a_second_compaction_goes_on_where_the_first_ended(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    bench.compact()
    bench.append(b"k1", b"new")
    bench.append(b"k3", None)
    bench.compact()
    assert bench.pairs() == [(b"k0", b"27"), (b"k2", b"29"), (b"k1", b"new"), (b"k3", None)]


def test_what_is_in_the_active_segment_waits_unless_it_is_forced(broker: SingleBroker) -> None:
    bench = Bench(broker, segment_bytes="100000")
    bench.fill()
    assert bench.compact(forced=False).passes == 0
    assert len(bench.pairs()) == 30
    bench.compact()
    assert bench.pairs() == NEWEST


def test_a_log_without_files_has_nothing_to_compact(broker: SingleBroker) -> None:
    bench = Bench(broker)
    assert bench.compact().passes == 0
    assert not bench.disk.exists(bench.partition.log.directory)


def test_the_recovery_point_is_on_disk_before_a_segment_gets_holes(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    found: list[int] = []
    path = f"data/{offset_checkpoint.RECOVERY_POINT}"
    bench.at(
        "rename", LOG, lambda: found.append(offset_checkpoint.decode(read_file(bench.disk, path))["t", 0])
    )
    bench.compact()
    assert found == [30]


def test_a_full_disk_ends_the_pass_leaves_nothing_and_the_log_serves_on(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    before = bench.pairs()

    def fill_up() -> None:
        bench.disk.free_bytes = 10

    bench.at("create", CLEANED, fill_up)
    with pytest.raises(SegmentRewriteError, match="No space left"):
        bench.compact()
    assert bench.pairs() == before
    assert bench.left_behind() == []
    assert bench.partition.log.offline is None
    bench.disk.free_bytes = PLENTY
    bench.append(b"k9", b"more")
    bench.compact()
    assert bench.pairs() == [*NEWEST, (b"k9", b"more")]


def test_a_full_disk_at_the_note_leaves_the_log_as_it_was(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()

    def fill_up() -> None:
        bench.disk.free_bytes = 0

    bench.at("create", "swap.tmp", fill_up)
    with pytest.raises(SegmentRewriteError, match="No space left"):
        bench.compact()
    assert bench.partition.log.offline is None
    assert [name for name in bench.left_behind() if name.endswith(CLEANED)] == []
    bench.disk.free_bytes = PLENTY
    bench.compact()
    assert bench.pairs() == NEWEST


def test_a_note_that_may_not_be_on_disk_takes_the_log_offline(broker: SingleBroker) -> None:
    """Another pass would write files that a start after a power loss puts in place half written."""
    bench = Bench(broker)
    bench.fill()
    bench.at("rename", SWAP_FILE, lambda: bench.disk.fail("sync_dir"))
    with pytest.raises(LogOffline):
        bench.compact()
    assert bench.partition.log.offline is not None
    with pytest.raises(LogOffline):
        bench.compact()


def test_records_deleted_under_a_pass_end_it_and_nothing_else_is_touched(broker: SingleBroker) -> None:
    """At the worst moment: the note is written, and the segments that it names are not all there any more."""
    bench = Bench(broker, cleanup_policy="compact,delete", segment_bytes="400")
    bench.fill()
    log = bench.partition.log
    start = log.segments[1].base_offset + 1
    later = bench.pairs()[start:]

    async def delete() -> None:
        await delete_records(
            [(bench.partition, start)],
            log_dir=broker.services.partitions.log_dir,
            executor=broker.services.executor,
        )

    bench.at("rename", SWAP_FILE, lambda: bench.loop.create_task(delete()))
    with pytest.raises(SegmentRewriteError, match="changed meanwhile"):
        bench.compact()
    bench.loop.run_until_idle()
    assert log.start_offset == start
    assert bench.left_behind() == []
    newest = dict(later)
    assert dict(bench.pairs()) == newest
    bench.compact()
    assert bench.pairs() == sorted(newest.items())


def test_a_log_deleted_under_a_pass_is_left_alone(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    partition = bench.partition
    folder = partition.log.directory

    def delete() -> None:
        bench.broker.services.partitions.log_dir.delete("t", 0)
        partition.close()

    bench.at("create", CLEANED, delete)
    with pytest.raises(SegmentRewriteError, match=r"gone|No such file"):
        bench.loop.run_until_complete(bench.cleaner.compact(partition, forced=True))
    assert not bench.disk.exists(f"{folder}/{SWAP_FILE}")


def test_damage_makes_a_log_uncleanable_and_its_range_is_refused(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    log = bench.partition.log
    (position, header), *_ = list(log.segments[1].walk(0))[1:]
    bench.disk.flip(log.segments[1].path(LOG), position + 65)
    with pytest.raises(SegmentRewriteError, match="cannot be compacted"):
        bench.compact()
    assert bench.cleaner.gave_up(bench.partition)
    assert log.corrupt == [CorruptRange(header.base_offset, header.last_offset + 1)]
    with pytest.raises(CorruptionError):
        reader.read(log, header.base_offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert reader.read(log, header.last_offset + 1, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert bench.left_behind() == []


def test_a_reader_in_the_middle_of_a_replaced_segment_gets_the_old_bytes(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    part = reader.read(bench.partition.log, 0, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert part is not None
    before = part.read()
    bench.compact()
    assert part.read() == before


def test_the_last_batch_of_a_producer_is_known_after_compaction_and_a_crash(broker: SingleBroker) -> None:
    bench = Bench(broker)
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(3):
        bench.append(b"k0", b"%d" % sequence, base_sequence=sequence, **options)
    bench.fill()
    bench.compact()
    for name in bench.disk.list(bench.partition.log.directory):
        if name.endswith(".snapshot"):
            bench.disk.remove(f"{bench.partition.log.directory}/{name}")
    again = SingleBroker(bench.loop, {}, bench.disk.kill())
    partition = again.partition("t")
    end = partition.log.end_offset
    now_ms = bench.loop.clock.now_ms()
    batch = memoryview(bytearray(build_batch([(b"k0", b"2", now_ms, ())], base_sequence=2, **options)))
    assert partition.append(batch, partition.check(batch, now_ms), now_ms).base_offset == 2
    assert partition.log.end_offset == end
    again.close()


def test_an_offline_log_is_not_compacted(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    bench.partition.log.go_offline("a test")
    with pytest.raises(LogOffline, match="a test"):
        bench.compact()


def test_a_log_that_could_not_be_opened_is_refused_by_its_reason(broker: SingleBroker) -> None:
    """It has no segments at all."""
    bench = Bench(broker)
    bench.fill(3)
    log = bench.partition.log
    log.segments.clear()
    log.go_offline("it could not be opened")
    with pytest.raises(LogOffline, match="could not be opened"):
        bench.compact()


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_stop_in_the_middle_of_a_pass_loses_nothing(broker: SingleBroker, turns: int) -> None:
    bench = Bench(broker)
    bench.fill()
    task = bench.loop.create_task(bench.cleaner.compact(bench.partition, forced=True))
    for _ in range(turns):
        bench.loop.call_soon(bench.loop.stop)
        bench.loop.run_forever()
    task.cancel()
    bench.loop.run_until_idle()
    broker.close()
    again = SingleBroker(bench.loop, {}, bench.disk.kill())
    after = Bench.__new__(Bench)
    after.broker, after.disk, after.loop = again, again.disk, again.loop
    assert again.partition("t").log.end_offset == 30
    assert dict(after.pairs()) == dict(NEWEST)
    assert after.left_behind() == []
    after.compact()
    assert after.pairs() == NEWEST
    again.close()
