"""When bytes reach the disk, who waits for it, and what a failure means (R4, R5)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from flintmq.errors import FlintError, LogOffline, StorageError
from flintmq.partitions.partition import Partition
from flintmq.storage.durability.flush import FLUSH_FAILED
from flintmq.testing.simulation import SimulatedClock, SimulatedExecutor, SimulatedLoop
from support.log.on_simulated_disk import DIRECTORY, PLENTY, Bench
from support.wire.batches import produced

NEVER = 1 << 62


class Rig:
    """A partition whose threads run only when the test lets the loop turn."""

    def __init__(self, loop: SimulatedLoop, **settings: Any) -> None:
        self.bench = Bench(**{"flush_messages": NEVER, "flush_ms": NEVER, **settings})
        self.loop = loop
        self.disk = self.bench.disk
        self.log = self.bench.log
        executor = SimulatedExecutor(loop, 1, steps_max=0)
        self.partition = Partition(self.log, clock=loop.clock, timers=loop, executor=executor)
        self.partition.lead(node_id=0, leader_epoch=0, replicas=[0], isr=[0])
        self.answers: list[FlintError | None] = []
        self.synced: list[str] = []
        self.disk.observer = lambda op, path: self.synced.append(path) if op == "sync" else None

    def append(self, size: int = 10) -> None:
        batch = memoryview(produced(bytes(size)))
        now_ms = self.loop.clock.now_ms()
        appended = self.partition.append(batch, self.partition.check(batch, now_ms), now_ms)
        if self.partition.is_visible(appended.last_offset):
            self.answers.append(None)
        else:
            self.partition.when_visible(appended.last_offset, self.answers.append)

    def data_syncs(self) -> int:
        return sum(path.endswith(".log") for path in self.synced)


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        yield loop


def test_by_default_nothing_waits_and_nothing_is_synced(loop: SimulatedLoop) -> None:
    rig = Rig(loop)
    rig.append()
    loop.advance(1000)
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.answers == [None]
    assert rig.synced == []
    assert rig.log.high_watermark == 1


def test_with_flush_messages_1_acknowledgement_and_visibility_wait_for_the_fsync(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_messages=1)
    rig.append()
    assert (rig.log.end_offset, rig.log.high_watermark) == (1, 0)
    assert rig.answers == []
    loop.run_until_idle()
    assert rig.data_syncs() == 1
    assert rig.answers == [None]
    assert rig.log.high_watermark == rig.log.recovery_point == 1


def test_all_who_wait_share_one_fsync(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_messages=1)
    for _ in range(50):
        rig.append()
    loop.run_until_idle()
    assert rig.answers == [None] * 50
    assert rig.data_syncs() == 2, "the one that was running, and one for all that came meanwhile"


def test_flush_messages_n_syncs_after_so_many_records_and_nobody_waits(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_messages=10)
    for _ in range(9):
        rig.append()
    loop.run_until_idle()
    assert rig.synced == []
    rig.append()
    assert rig.answers == [None] * 10
    loop.run_until_idle()
    assert (rig.data_syncs(), rig.log.recovery_point) == (1, 10)


def test_flush_ms_syncs_what_has_waited_so_long(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_ms=500)
    rig.log.last_flush_ms = loop.clock.now_ms()
    rig.append()
    loop.advance(0.4)
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.log.recovery_point == 0
    loop.advance(0.1)
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.log.recovery_point == 1
    rig.synced.clear()
    loop.advance(10)
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.synced == [], "nothing new, nothing to sync"


def test_a_sealed_segment_is_flushed_whatever_the_settings(loop: SimulatedLoop) -> None:
    rig = Rig(loop, segment_bytes=400)
    for _ in range(9):
        rig.append(100)
    loop.run_until_idle()
    assert rig.log.sealed == []
    active = rig.log.active.base_offset
    assert rig.log.recovery_point >= active > 0
    for segment in rig.log.segments[:-1]:
        assert segment.offset_index is None
        assert rig.disk.exists(segment.path(".index"))


def test_the_first_flush_makes_the_names_durable_and_the_next_syncs_only_the_data(
    loop: SimulatedLoop,
) -> None:
    rig = Rig(loop, flush_messages=1)
    rig.append()
    loop.run_until_idle()
    assert len(rig.synced) == 3
    rig.synced.clear()
    rig.append()
    loop.run_until_idle()
    assert rig.synced == [rig.bench.path(0, ".log")]


# -- failures


def test_a_failed_fsync_takes_the_log_offline_is_told_to_all_who_wait_and_never_retried(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(loop, flush_messages=1)
    rig.append()
    loop.run_until_idle()
    rig.disk.fail("sync")
    rig.append()
    rig.append()
    loop.run_until_idle()
    assert rig.answers[0] is None
    assert len(rig.answers) == 3
    assert all("fsync failed" in str(answer) for answer in rig.answers[1:])
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert (rig.log.high_watermark, rig.log.recovery_point) == (1, 1)
    assert rig.disk.exists(f"{DIRECTORY}/{FLUSH_FAILED}")
    rig.synced.clear()
    with pytest.raises(LogOffline):
        rig.append()
    loop.advance(1000)
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.synced == []


def test_an_index_that_finds_no_space_is_written_later_and_nobody_is_acknowledged_meanwhile(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(loop, flush_messages=1, segment_bytes=400)
    rig.append(100)
    loop.run_until_idle()
    rig.append(100)
    rig.disk.free_bytes = 350
    rig.append(200)
    rig.disk.free_bytes = 0
    loop.run_until_idle()
    assert rig.log.offline is None
    assert "Trying again" in caplog.text
    waiting = 3 - len(rig.answers)
    assert waiting > 0
    rig.disk.free_bytes = PLENTY
    rig.partition.flush_if_due(loop.clock.now_ms())
    loop.run_until_idle()
    assert rig.answers == [None] * 3
    assert rig.log.recovery_point == 3


def test_no_space_at_the_fsync_of_the_data_itself_is_fatal(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_messages=1)
    rig.disk.fail("sync", code=errno.ENOSPC)
    rig.append()
    loop.run_until_idle()
    assert rig.log.offline is not None
    assert rig.answers[0] is not None


# -- changes of the setting


def test_records_that_waited_become_visible_when_waiting_is_switched_off(loop: SimulatedLoop) -> None:
    rig = Rig(loop, flush_messages=1)
    rig.append()
    rig.bench.reconfigure()
    rig.partition.configure(rig.bench.config)
    assert rig.answers == [None]


def test_records_wait_from_the_moment_the_setting_says_so(loop: SimulatedLoop) -> None:
    rig = Rig(loop)
    rig.append()
    rig.bench.reconfigure(flush_messages=1)
    rig.partition.configure(rig.bench.config)
    assert rig.log.high_watermark == 1
    rig.append()
    assert rig.answers == [None]
    loop.run_until_idle()
    assert rig.answers == [None, None]
    assert rig.log.recovery_point == 2


def test_a_flush_that_a_truncation_overtakes_fails_those_who_wait_for_it(loop: SimulatedLoop) -> None:
    """What they wrote may be gone, and the recovery point stays below it."""
    rig = Rig(loop)
    for _ in range(5):
        rig.append()
    told: list[BaseException | None] = []
    rig.partition.flush(told.append)
    truncation = rig.log.begin_truncation(2, 0)
    assert truncation is not None
    rig.partition.flush(told.append)
    assert [type(error) for error in told] == [StorageError]
    truncation.run()
    rig.log.finish_truncation(truncation, 0)
    rig.append()
    loop.run_until_idle()
    assert [type(error) for error in told] == [StorageError, StorageError]
    assert (rig.log.recovery_point, rig.log.offline) == (2, None)
    rig.partition.flush(told.append)
    loop.run_until_idle()
    assert told[2:] == [None]
    assert rig.log.recovery_point == 3
