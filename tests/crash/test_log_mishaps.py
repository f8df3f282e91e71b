"""Orders of events in which a log once lost, brought back or kept something that it should not (R1–R3, Z7, B11).

Each is told in few steps on a simulated disk, over some seeds, which choose what of the unsynced bytes and names is
there after a power loss. What must hold at every start is in `support.log.checks`.
"""

from __future__ import annotations

import errno
import itertools
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.life import Found, LogLife
from support.wire.batches import append, produced

SEEDS = pytest.mark.parametrize("seed", range(20))
COMPACTED = TopicConfig(cleanup_policy=("compact", "delete"), segment_bytes=400, delete_retention_ms=0)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def put(life: LogLife, value: bytes = bytes(100), *, key: bytes = b"k", producer: int = 1) -> None:
    life.append([(key, value)], producer_id=producer, age_ms=0, codec=Codec.NONE)


def failing_removal(disk: SimulatedDisk, times: int) -> Callable[[str], None]:
    remove, failures = disk.remove, iter(range(times))

    def failing(path: str) -> None:
        if path.endswith(".log") and next(failures, None) is not None:
            raise OSError(errno.EIO, "Input/output error", path)
        remove(path)

    return failing


# -- rolling on a full disk


@pytest.mark.parametrize("seed", range(60))
def test_the_file_of_a_segment_that_could_not_be_made_does_not_come_back(seed: int) -> None:
    config = TopicConfig(segment_bytes=400, flush_messages=1, preallocate=True)
    life = LogLife(config, seed=seed)
    put(life, b"x")
    life.wait(0)
    life.checkpoint()
    life.wait(0)
    life.disk.free_bytes = 0
    life.roll()
    life.settle()
    put(life, b"y")
    life.wait(0)
    assert life.model.promised == 2
    life.crash(power=True)
    life.end()


def test_a_log_is_offline_if_such_a_file_cannot_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    life = LogLife(TopicConfig(segment_bytes=400, flush_messages=1, preallocate=True), seed=0)
    put(life, b"x")
    life.wait(0)
    with monkeypatch.context() as patch:
        patch.setattr(life.disk, "remove", failing_removal(life.disk, 1))
        life.disk.free_bytes = 0
        life.roll()
    assert life.log.offline is not None
    life.settle()
    assert life.log.end_offset == 1
    life.end()


# -- syncs that fail


@SEEDS
@pytest.mark.parametrize("flush_messages", [1, 1 << 30])
def test_a_stop_during_a_sync_that_fails_is_not_a_clean_one(seed: int, flush_messages: int) -> None:
    life = LogLife(TopicConfig(flush_messages=flush_messages), seed=seed)
    for _ in range(3):
        put(life)
    life.wait(0)
    put(life, bytes(600))
    life.partition.flush(lambda error: None)
    life.disk.fail("sync")
    life.stop()
    life.crash(power=True)
    life.end()


@SEEDS
def test_a_snapshot_whose_sync_failed_is_written_again(seed: int) -> None:
    life = LogLife(COMPACTED, seed=seed)
    put(life, bytes(40), producer=3)
    life.roll()
    life.wait(0)
    life.end_transaction(3, commit=False, bumps_epoch=True)
    put(life, b"")
    life.roll()
    life.disk.fail("sync")
    life.partition.flush(lambda error: None)
    life.wait(0)
    assert "snapshot" in (life.log.offline or "")
    life.settle()
    for _ in range(3):
        life.compact(forced=True, wait=True)
        life.wait(5)
    life.crash(power=True)
    assert life.log.last_stable_offset == life.log.high_watermark
    life.end()


# -- snapshots of producers


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_snapshot_of_records_that_were_cut_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the process that removes it is killed before it could sync that: seen in one of two hundred seeds."""
    for seed in range(1800):
        values = random.Random(seed)
        life = LogLife(TopicConfig(segment_bytes=1 << 20), seed=seed)
        for _ in range(3):
            put(life, values.randbytes(620))
        life.disk.open(f"data/t-0/{0:020d}.log").sync()
        put(life, values.randbytes(620), producer=2)
        life.roll()
        for name in (f"{4:020d}.snapshot", "partition.metadata"):
            life.disk.open(f"data/t-0/{name}").sync()
        life.disk.sync_dir("data/t-0")
        life.disk.sync_dir("data")
        with monkeypatch.context() as patch:
            kill_at_sync(life, 2 + seed % 3, patch)
            life.crash(power=True)
        life.disk.observer = life._observe
        if life.log.end_offset == 3:
            for _ in range(3):
                put(life, values.randbytes(100))
            life.crash(power=True)
        life.end()


def kill_at_sync(life: LogLife, nth: int, patch: pytest.MonkeyPatch) -> None:
    """Kill the process that recovers the log right before it syncs the log's folder for the nth time."""
    observe, syncs = life._observe, itertools.count(1)

    def observe_and_kill(operation: str, path: str) -> None:
        observe(operation, path)
        if not life._is_open and (operation, path) == ("sync_dir", "data/t-0") and next(syncs) == nth:
            life.arm(1, power=False)
            observe("kill", path)

    patch.setattr(life, "_observe", observe_and_kill)


def test_a_snapshot_is_durable_however_many_segments_are_rolled_while_it_is_synced() -> None:
    life = LogLife(TopicConfig(cleanup_policy=("compact",), segment_bytes=400), seed=0)
    log = life.log
    for _ in range(10):
        for _ in range(4):
            put(life)
        flush = log.prepare_flush()
        for _ in range(12):
            put(life)
        newest = flush.snapshot_offset
        flush.run()
        log.flushed(flush, 0)
        assert log.snapshots.durable_offset == newest > 0
        assert len(log.snapshots.offsets) <= 5
    life.end()


# -- starts


@SEEDS
def test_a_compaction_waits_for_the_start_that_it_goes_by(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are deleted after its checkpoint and before its pass, and their start cannot be written."""
    life = LogLife(COMPACTED, seed=seed)
    put(life, bytes(40), key=b"a", producer=3)
    life.roll()
    life.end_transaction(3, commit=False, bumps_epoch=True)
    put(life, b"", key=b"b")
    life.roll()
    put(life, b"", key=b"c")
    life.wait(0)
    checkpoint = life.folder.checkpoint
    calls: list[int] = []

    def checkpoint_and_delete() -> None:
        if calls:
            life.arm(1, power=True)
        checkpoint()
        calls.append(1)
        if len(calls) == 1:
            life.disk.fail("sync")
            life.loop.call_soon(lambda: life.delete_records(0.3, wait=False))

    monkeypatch.setattr(life.folder, "checkpoint", checkpoint_and_delete)
    life.compact(forced=False, wait=True)
    if not life.has_crashed:
        life.crash(power=True)
    life.settle()
    life.end()


@SEEDS
def test_the_start_of_a_topic_made_again_is_durable_while_the_old_ones_is_written(seed: int) -> None:
    config = TopicConfig(cleanup_policy=("delete",), segment_bytes=400)
    other, old, new = (bytes(15) + bytes([number]) for number in (1, 2, 3))
    disk = SimulatedDisk(seed)
    disk.sync_dir("")
    with closing(SimulatedLoop(SimulatedClock())) as loop:

        def open_folder(disk: SimulatedDisk, *topics: tuple[str, bytes]) -> LogDir:
            executor = SimulatedExecutor(loop, seed)
            folder = LogDir("data", disk=disk, clock=loop.clock, executor=executor, descriptors=8)
            folder.check_format()
            wanted = [AssignedPartition(name, 0, topic_id, config) for name, topic_id in topics]
            loop.run_until_complete(folder.load(wanted, deleting=frozenset()))
            return folder

        def fill(log: Log, count: int) -> None:
            for _ in range(count):
                append(log, produced(bytes(100)))

        folder = open_folder(disk, ("a", other), ("b", old))
        for log in folder.logs.values():
            fill(log, 5)
            log.advance_start(1)
        recreated: list[Log] = []

        def recreate(operation: str, path: str) -> None:
            if not recreated and operation == "sync" and "a-0/partition.metadata" in path:
                remove = folder.delete("b", 0)
                assert remove is not None
                remove()
                recreated.append(folder.create(AssignedPartition("b", 0, new, config)))
                fill(recreated[0], 9)

        disk.observer = recreate
        folder.checkpoint_starts()
        disk.observer = None
        (log,) = recreated
        dropped = log.advance_start(7)
        folder.checkpoint_starts()
        log.remove_files(dropped)
        # The system writes back what it likes.
        for name in disk.list("data/b-0"):
            if name.endswith(".log"):
                disk.open(f"data/b-0/{name}").sync()
        disk.sync_dir("data/b-0")
        disk.sync_dir("data")
        assert open_folder(disk.crash(), ("a", other), ("b", new)).logs["b", 0].start_offset >= 7


# -- room on the disk


def _orphans(life: LogLife) -> list[str]:
    """Files of segments that are no longer of the log."""
    mine = {segment.base_offset for segment in life.log.segments}
    names = life.disk.list(life.log.directory)
    return [name for name in names if name.endswith(".log") and int(name[:20]) not in mine]


def test_an_idle_log_does_not_hold_files_that_retention_removed() -> None:
    life = LogLife(TopicConfig(retention_ms=1000), seed=0)
    for _ in range(12):
        put(life)
    life.loop.advance(10)
    life.retain(wait=True)
    assert life.log.start_offset == 12
    assert not any(sealed.segment.removed for sealed in life.log.sealed)
    life.end()


def test_files_that_could_not_be_removed_go_with_the_next_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    life = LogLife(TopicConfig(segment_bytes=400, retention_ms=1000), seed=0)
    for _ in range(20):
        put(life)
    life.wait(5)
    monkeypatch.setattr(life.disk, "remove", failing_removal(life.disk, 1))
    life.retain(wait=True)
    assert len(_orphans(life)) == 1
    life.retain(wait=True)
    assert not _orphans(life)
    life.end()


def test_files_below_a_start_that_could_not_be_written_go_with_the_next_retention() -> None:
    life = LogLife(TopicConfig(segment_bytes=400, retention_ms=1000), seed=0)
    for _ in range(20):
        put(life)
    life.wait(5)
    life.disk.fail("sync_dir")
    life.retain(wait=True)
    assert _orphans(life)
    life.retain(wait=True)
    assert not _orphans(life)
    life.end()


def test_first_batches_that_found_no_room_leave_no_folders() -> None:
    life = LogLife(TopicConfig(), seed=0)
    life.disk.free_bytes = 20
    for _ in range(10):
        put(life)
    assert not [name for name in life.disk.list("data") if name.endswith("-stray")]
    life.end()


@pytest.mark.parametrize("flush_messages", [1, 1 << 30])
def test_a_log_is_opened_on_a_full_disk(flush_messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    life = LogLife(TopicConfig(segment_bytes=400, flush_messages=flush_messages), seed=0)
    for _ in range(9):
        put(life)
    life.wait(0)
    for _ in range(3):
        put(life)
    crash = life._crash

    def crash_on_a_full_disk(*, power: bool) -> Found:
        found = crash(power=power)
        found.disk.free_bytes = 0
        return found

    monkeypatch.setattr(life, "_crash", crash_on_a_full_disk)
    life.crash(power=False)
    assert life.log.end_offset == 12
    life.end()
