"""The data directory of a broker in a cluster: high watermarks that are written down, and truncated logs (S1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.effects import read_file
from flintmq.records.batch import read_header
from flintmq.settings import TopicConfig
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.storage.truncation.notes import NOTE_FILE
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.on_simulated_disk import NOW_MS, contents
from support.wire.batches import produced

ID = bytes([1] * 16)
CHECKPOINT = "data/replication-offset-checkpoint"


class Rig:
    """One broker after another on the same directory."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.disk = SimulatedDisk(3, journaling=False)
        self.disk.sync_dir("")
        self.loop = loop
        self.open()

    def open(self, *, replicated: bool = True) -> Log:
        self.folder = LogDir(
            "data",
            disk=self.disk,
            clock=self.loop.clock,
            executor=SimulatedExecutor(self.loop, 0),
            descriptors=64,
            replicated=replicated,
        )
        self.folder.check_format()
        assigned = [AssignedPartition("a", 0, ID, TopicConfig(segment_bytes=500))]
        ((self.log, _),) = self.loop.run_until_complete(self.folder.load(assigned, deleting=frozenset()))
        return self.log

    def fill(self, count: int) -> None:
        for _ in range(count):
            view = memoryview(produced(b"one" + bytes(90), b"two"))
            self.log.append(view, read_header(view), leader_epoch=0, now_ms=NOW_MS)

    def flush(self) -> None:
        flush = self.log.prepare_flush()
        flush.run()
        self.log.flushed(flush, NOW_MS)

    def truncate(self, offset: int) -> None:
        truncation = self.log.begin_truncation(offset, NOW_MS)
        assert truncation is not None
        truncation.run()
        self.log.finish_truncation(truncation, NOW_MS)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        yield Rig(loop)


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_is_visible_up_to_the_high_watermark_that_was_written_down(rig: Rig, clean: bool) -> None:
    rig.fill(9)
    rig.log.advance(6)
    rig.flush()
    rig.folder.checkpoint()
    assert read_file(rig.disk, CHECKPOINT) == b"0\n1\na 0 6\n"
    if clean:
        rig.folder.close()
    log = rig.open()
    assert (log.high_watermark, log.end_offset) == (6, 18)
    assert len(contents(log, Isolation.READ_UNCOMMITTED)) == 3
    # On from there, batch by batch, though none of them was appended by this process.
    for offset in range(7, 19):
        log.advance(offset)
        assert log.high_watermark == offset // 2 * 2
        assert len(contents(log, Isolation.READ_UNCOMMITTED)) == offset // 2


@pytest.mark.parametrize(("written", "expected"), [(b"7", 6), (b"99", 18), (b"2", 4)])
def test_it_lies_at_a_batchs_end_between_the_start_and_the_end(
    rig: Rig, written: bytes, expected: int
) -> None:
    rig.fill(9)
    rig.log.advance(18)
    rig.log.advance_start(4)
    rig.flush()
    rig.folder.checkpoint()
    file = rig.disk.open(CHECKPOINT)
    file.truncate(0)
    file.pwrite(b"0\n1\na 0 " + written + b"\n", 0)
    assert rig.open().high_watermark == expected


def test_a_lone_broker_writes_none_and_everything_is_visible(rig: Rig) -> None:
    rig.open(replicated=False)
    rig.fill(9)
    rig.flush()
    rig.folder.checkpoint()
    assert not rig.disk.exists(CHECKPOINT)
    assert rig.open(replicated=False).high_watermark == 18


def test_the_checkpoints_take_over_from_the_note_about_a_truncation(rig: Rig) -> None:
    rig.fill(9)
    rig.flush()
    rig.folder.checkpoint()
    rig.truncate(6)
    note = f"data/a-0/{NOTE_FILE}"
    assert rig.disk.exists(note)
    rig.folder.checkpoint()
    assert read_file(rig.disk, "data/recovery-point-offset-checkpoint") == b"0\n1\na 0 6\n"
    assert not rig.disk.exists(note)
    assert rig.open().end_offset == 6


def test_a_start_that_is_acknowledged_counts_more_than_that_of_an_older_note(rig: Rig) -> None:
    rig.fill(9)
    truncation = rig.log.begin_restart(50, NOW_MS)
    truncation.run()
    rig.log.finish_truncation(truncation, NOW_MS)
    rig.fill(3)
    rig.log.advance(56)
    rig.log.advance_start(54)
    rig.folder.checkpoint_starts()
    assert rig.open().start_offset == 54


def test_a_stop_within_a_truncation_is_not_a_clean_one(rig: Rig) -> None:
    rig.fill(9)
    rig.flush()
    truncation = rig.log.begin_truncation(6, NOW_MS)
    assert truncation is not None
    rig.folder.close()
    truncation.run()
    assert not rig.disk.exists("data/clean-shutdown")
    assert rig.open().end_offset == 18


# -- what recovery makes of a copy


def test_holes_above_the_recovery_point_are_kept_whatever_the_policy_is_by_then(rig: Rig) -> None:
    """A follower copied them with the rest of a compacted log; then the topic's policy changed to delete."""
    data = bytearray()
    for base in (3, 4, 20, 41):
        batch = produced(bytes(120))
        batch[0:8], batch[12:16] = base.to_bytes(8, "big"), bytes(4)
        data += batch
    rig.log.append_replicated(memoryview(data), NOW_MS)
    before = contents(rig.log)
    assert contents(rig.open()) == before
    assert rig.log.end_offset == 42


def test_a_log_is_cut_where_the_leader_epoch_falls(rig: Rig) -> None:
    """The epoch is outside the CRC. What comes after such a batch was never written there."""
    for epoch in (3, 5, 5):
        view = memoryview(produced(b"v"))
        rig.log.append(view, read_header(view), leader_epoch=epoch, now_ms=NOW_MS)
    segment = rig.log.active
    position = [position for position, _ in segment.walk(0)][2]
    segment.open().pwrite((4).to_bytes(4, "big"), position + 12)
    log = rig.open()
    assert log.end_offset == 2
    assert log.epochs.latest == 5


def test_damage_is_told_of_logs_that_are_there_and_of_those_that_come(rig: Rig) -> None:
    """S5: a repair begins when damage is found, and not when somebody looks."""
    found: list[str] = []

    def watch(log: Log) -> None:
        log.on_corrupt = lambda: found.append(log.name)

    rig.folder.watch(watch)
    created = rig.folder.create(AssignedPartition("b", 0, bytes([2] * 16), TopicConfig()))
    for log in (rig.log, created):
        log.add_corrupt(CorruptRange(3, 5))
        log.add_corrupt(CorruptRange(3, 5))
    assert found == ["a-0", "b-0"]
    created.forget_corrupt(0, 10)
    assert not created.corrupt
