"""The data folder: formats, clean stops, strays, deletion, topics that come back under their name (R1, R5)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from flintmq.effects import read_file, write_plainly
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.errors import ConfigurationError, LogOffline, StorageError
from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.on_simulated_disk import NOW_MS, contents
from support.wire.batches import append, produced

CONFIG = TopicConfig(segment_bytes=400)
OLD, NEW = bytes([1] * 16), bytes([2] * 16)
Open = Callable[..., LogDir]


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(3, journaling=False)
    disk.sync_dir("")
    return disk


@pytest.fixture
def open_folder(disk: SimulatedDisk) -> Iterator[Open]:
    """A new process on the folder, with these topics known to the metadata."""
    with closing(SimulatedLoop(SimulatedClock())) as loop:

        def open_folder(
            *topics: tuple[str, bytes],
            deleting: frozenset[bytes] = frozenset(),
            on: SimulatedDisk = disk,
        ) -> LogDir:
            folder = LogDir(
                "data", disk=on, clock=loop.clock, executor=SimulatedExecutor(loop, 0), descriptors=64
            )
            folder.check_format()
            loop.run_until_complete(
                folder.load(
                    [AssignedPartition(name, 0, id, CONFIG) for name, id in topics], deleting=deleting
                )
            )
            return folder

        yield open_folder


def fill(log: Log, count: int) -> list[bytes]:
    written = []
    for _ in range(count):
        batch = produced(b"%s %d" % (log.topic.encode(), log.end_offset) + bytes(80))
        append(log, batch)
        written.append(bytes(batch))
    return written


def flush(log: Log) -> None:
    work = log.prepare_flush()
    work.run()
    log.flushed(work, NOW_MS)


# -- the format file


def test_a_new_folder_is_marked_with_its_format(open_folder: Open, disk: SimulatedDisk) -> None:
    open_folder()
    assert json.loads(read_file(disk, "data/format")) == {"format": 1}
    for _ in range(10):
        assert disk.crash().exists("data/format")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": "x"}', b"\x00\x01"])
def test_a_format_that_makes_no_sense_is_refused_with_advice(
    content: bytes, open_folder: Open, disk: SimulatedDisk
) -> None:
    open_folder()
    write_plainly(disk, "data/format", content)
    with pytest.raises(ConfigurationError, match="restore the file"):
        open_folder()


def test_a_newer_format_is_refused_before_anything_is_touched(open_folder: Open, disk: SimulatedDisk) -> None:
    folder = open_folder(("a", OLD))
    folder.close()
    write_plainly(disk, "data/format", b'{"format": 2}')
    with pytest.raises(ConfigurationError, match="newer"):
        open_folder(("a", OLD))
    assert disk.exists("data/clean-shutdown")


# -- clean stops


def test_a_clean_stop_leaves_a_promise_that_the_next_start_takes_back_first(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    written = fill(folder.logs["a", 0], 10)
    folder.close()
    assert read_file(disk, "data/clean-shutdown") == b"0\n1\na 0 10\n"
    for _ in range(5):
        found = disk.crash()
        again = open_folder(("a", OLD), on=found)
        assert contents(again.logs["a", 0]) == written
        for _ in range(3):
            assert not found.crash().exists("data/clean-shutdown")


def test_a_log_that_is_offline_keeps_the_promise_from_being_made(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD), ("b", NEW))
    written = fill(folder.logs["b", 0], 3)
    folder.logs["a", 0].go_offline("its disk died")
    folder.close()
    assert not disk.exists("data/clean-shutdown")
    assert contents(open_folder(("a", OLD), ("b", NEW)).logs["b", 0]) == written


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_from_it(
    open_folder: Open, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(("a", OLD), ("b", NEW))
    fill(folder.logs["a", 0], 3)
    written = fill(folder.logs["b", 0], 3)
    disk.fail("sync")
    folder.close()
    assert "could not be closed" in caplog.text
    assert not disk.exists("data/clean-shutdown")
    for _ in range(5):
        again = open_folder(("a", OLD), ("b", NEW), on=disk.crash())
        assert contents(again.logs["b", 0]) == written


def test_a_full_disk_at_the_stop_costs_a_scan_and_no_data(
    open_folder: Open, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(("a", OLD))
    written = fill(folder.logs["a", 0], 2)
    flush(folder.logs["a", 0])
    disk.free_bytes = 0
    folder.close()
    assert not disk.exists("data/clean-shutdown")
    assert caplog.records
    disk.free_bytes = 1 << 30
    assert contents(open_folder(("a", OLD)).logs["a", 0]) == written


def test_a_log_that_ends_elsewhere_than_promised_is_reported(
    open_folder: Open, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(("a", OLD))
    fill(folder.logs["a", 0], 2)
    folder.close()
    write_plainly(disk, "data/clean-shutdown", b"0\n1\na 0 5\n")
    open_folder(("a", OLD))
    assert "changed from outside" in caplog.text


@pytest.mark.parametrize(
    "name", ["clean-shutdown", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_damaged_checkpoint_costs_a_scan_and_no_data(
    name: str, open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    written = fill(folder.logs["a", 0], 10)
    folder.close()
    write_plainly(disk, f"data/{name}", b"0\n7\nnonsense\n")
    again = open_folder(("a", OLD))
    assert contents(again.logs["a", 0]) == written


def test_a_log_that_the_disk_does_not_give_is_offline_and_the_others_are_served(
    open_folder: Open, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(("a", OLD), ("b", NEW))
    fill(folder.logs["a", 0], 9)
    written = fill(folder.logs["b", 0], 3)
    folder.logs["a", 0].advance_start(5)
    folder.checkpoint_starts()
    broken = f"data/a-0/{folder.logs['a', 0].segments[0].base_offset:020d}.log"

    found = disk.kill()
    real_open = found.open

    def failing(path: str, *, create: bool = False, writable: bool = True) -> object:
        if path == broken:
            raise OSError(5, "Input/output error")
        return real_open(path, create=create, writable=writable)

    found.open = failing  # type: ignore[method-assign, assignment]
    again = open_folder(("a", OLD), ("b", NEW), on=found)
    assert again.logs["a", 0].offline is not None
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)
    assert contents(again.logs["b", 0]) == written
    again.checkpoint()
    again.close()
    found.open = real_open  # type: ignore[method-assign]
    assert open_folder(("a", OLD), ("b", NEW), on=found).logs["a", 0].start_offset == 5


# -- checkpoints


def test_the_start_of_a_log_is_durable_once_it_is_checkpointed(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    log = folder.logs["a", 0]
    fill(log, 10)
    dropped = log.advance_start(7)
    folder.checkpoint_starts()
    log.remove_files(dropped)
    for _ in range(20):
        found = open_folder(("a", OLD), on=disk.crash()).logs["a", 0]
        assert found.start_offset == 7
        assert found.end_offset >= 7


def test_checkpoints_are_written_only_when_something_changed(open_folder: Open, disk: SimulatedDisk) -> None:
    folder = open_folder(("a", OLD))
    fill(folder.logs["a", 0], 3)
    flush(folder.logs["a", 0])
    folder.checkpoint()
    operations: list[str] = []
    disk.observer = lambda operation, path: operations.append(operation)
    folder.checkpoint()
    assert operations == []


def test_what_was_renamed_but_not_synced_before_a_kill_is_synced_before_anybody_relies_on_it(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    fill(folder.logs["a", 0], 5)
    flush(folder.logs["a", 0])
    folder.logs["a", 0].advance_start(3)
    disk.fail("sync_dir")
    with pytest.raises(OSError, match="Input/output"):
        folder.checkpoint_starts()
    survivor = disk.kill()
    again = open_folder(("a", OLD), on=survivor)
    assert again.logs["a", 0].start_offset == 3
    again.checkpoint_starts()
    for _ in range(10):
        assert open_folder(("a", OLD), on=survivor.crash()).logs["a", 0].start_offset == 3


def test_a_flush_of_a_log_that_was_deleted_meanwhile_is_no_failure(open_folder: Open) -> None:
    folder = open_folder(("a", OLD))
    log = folder.logs["a", 0]
    fill(log, 5)
    assert log.snapshots.offsets
    work = log.prepare_flush()
    remove = folder.delete("a", 0)
    assert remove is not None
    remove()
    work.run()


# -- topics of the same name


@pytest.mark.parametrize("nth", [1, 2])
def test_a_checkpoint_that_was_written_but_not_synced_is_not_of_the_topic_made_again(
    open_folder: Open, disk: SimulatedDisk, nth: int
) -> None:
    folder = open_folder(("a", OLD))
    fill(folder.logs["a", 0], 5)
    flush(folder.logs["a", 0])
    folder.logs["a", 0].advance_start(3)
    disk.fail("sync_dir", nth=nth)
    with pytest.raises(OSError, match="Input/output"):
        folder.checkpoint()
    remove = folder.delete("a", 0)
    assert remove is not None
    log = folder.create(AssignedPartition("a", 0, NEW, CONFIG))
    written = fill(log, 1)
    remove()
    found = open_folder(("a", NEW), on=disk.kill()).logs["a", 0]
    assert (found.start_offset, found.recovery_point) == (0, 0)
    assert contents(found) == written


def test_a_topic_made_again_never_sees_the_records_or_checkpoints_of_the_one_before(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    old = folder.logs["a", 0]
    fill(old, 30)
    flush(old)
    old.advance_start(20)
    folder.checkpoint()
    remove = folder.delete("a", 0)
    new = folder.create(AssignedPartition("a", 0, NEW, CONFIG))
    assert (new.start_offset, new.end_offset) == (0, 0)
    written = fill(new, 5)
    flush(new)
    for _ in range(10):
        found = open_folder(("a", NEW), deleting=frozenset({OLD}), on=disk.crash())
        assert contents(found.logs["a", 0]) == written
        assert found.logs["a", 0].start_offset == 0
    assert remove is not None
    remove()
    assert [name for name in disk.list("data") if name.startswith("a-0")] == ["a-0"]


def test_a_flush_or_deletion_of_the_old_topic_that_runs_late_leaves_the_new_ones_files_alone(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    old = folder.logs["a", 0]
    fill(old, 10)
    late_flush = old.prepare_flush()
    dropped = old.advance_start(5)
    folder.delete("a", 0)
    new = folder.create(AssignedPartition("a", 0, NEW, CONFIG))
    written = fill(new, 10)
    late_flush.run()
    old.remove_files(dropped)
    again = open_folder(("a", NEW), deleting=frozenset({OLD}), on=disk.kill())
    assert contents(again.logs["a", 0]) == written
    assert contents(new) == written


def test_a_deleted_log_is_offline_at_once_and_a_reader_finishes(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    log = folder.logs["a", 0]
    written = fill(log, 1)
    part = reader.read(log, 0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
    remove = folder.delete("a", 0)
    with pytest.raises(LogOffline):
        fill(log, 1)
    assert remove is not None
    remove()
    assert part is not None
    assert part.read() == written[0]
    assert folder.delete("a", 0) is None


def test_a_folder_deleted_before_a_crash_is_removed_by_the_next_start(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    fill(folder.logs["a", 0], 3)
    folder.delete("a", 0)
    again = open_folder(deleting=frozenset({OLD}))
    for remove in again.unfinished_deletions():
        remove()
    assert not [name for name in disk.list("data") if name.startswith("a-0")]
    for _ in range(10):
        found = disk.crash()
        assert not [name for name in found.list("data") if name.startswith("a-0")], "it is forgotten for good"


def test_a_folder_that_no_topic_owns_is_kept_aside_and_not_served(
    open_folder: Open, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(("a", OLD))
    written = fill(folder.logs["a", 0], 2)
    again = open_folder(("a", NEW), on=disk)
    assert again.logs["a", 0].end_offset == 0
    (stray,) = [name for name in disk.list("data") if name.endswith("-stray")]
    assert stray in caplog.text
    assert read_file(disk, f"data/{stray}/{0:020d}.log") == b"".join(written)
    assert not again.unfinished_deletions()


def test_two_strays_of_one_name_are_both_kept(open_folder: Open, disk: SimulatedDisk) -> None:
    for _ in range(2):
        disk.makedirs("data/a-0")
        write_plainly(disk, "data/a-0/partition.metadata", b"damaged")
        open_folder()
    assert len([name for name in disk.list("data") if name.endswith("-stray")]) == 2


def test_a_folder_that_lost_its_id_is_taken_over_unless_a_deleted_topic_may_have_left_it(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder(("a", OLD))
    written = fill(folder.logs["a", 0], 3)
    write_plainly(disk, "data/a-0/partition.metadata", b"")
    adopted = open_folder(("a", OLD), on=disk.kill())
    assert contents(adopted.logs["a", 0]) == written
    doubtful = open_folder(("a", NEW), deleting=frozenset({OLD}), on=disk.kill())
    assert doubtful.logs["a", 0].end_offset == 0


# -- logs without files


def test_a_new_partition_has_no_folder_until_its_first_batch(open_folder: Open, disk: SimulatedDisk) -> None:
    folder = open_folder()
    log = folder.create(AssignedPartition("a", 0, NEW, CONFIG))
    assert not log.is_created
    assert not disk.exists("data/a-0")
    assert reader.read(log, 0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True) is None
    written = fill(log, 1)
    assert log.is_created
    assert contents(log) == written
    assert contents(open_folder(("a", NEW), on=disk.kill()).logs["a", 0]) == written


def test_a_log_without_files_outlives_a_stop_and_can_be_deleted(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    folder = open_folder()
    folder.create(AssignedPartition("a", 0, NEW, CONFIG))
    folder.close()
    again = open_folder(("a", NEW))
    assert not disk.exists("data/a-0")
    assert again.logs["a", 0].end_offset == 0
    assert again.delete("a", 0) is None


def test_a_folder_that_cannot_be_made_is_tried_again_by_the_next_append(
    open_folder: Open, disk: SimulatedDisk
) -> None:
    log = open_folder().create(AssignedPartition("a", 0, NEW, CONFIG))
    disk.free_bytes = 0
    with pytest.raises(StorageError):
        fill(log, 1)
    disk.free_bytes = 1 << 20
    written = fill(log, 2)
    assert contents(log) == written


# -- checkpoints written from threads, by requests and by maintenance

_THREADS = 4
_ROUNDS = 25


def test_the_last_of_many_written_at_once_has_the_newest_starts(tmp_path: Path) -> None:
    with closing(asyncio.new_event_loop()) as loop, closing(LoopExecutor(loop)) as executor:
        disk = RealDisk()
        folder = LogDir(str(tmp_path), disk=disk, clock=SystemClock(), executor=executor, descriptors=16)
        logs = [
            folder.create(AssignedPartition("t", index, bytes(16), TopicConfig()))
            for index in range(_THREADS)
        ]
        for log in logs:
            append(log, produced(b"x"))
        together = Barrier(_THREADS, timeout=10)

        def delete_often(index: int) -> None:
            for start in range(1, _ROUNDS + 1):
                together.wait()
                logs[index].advance_start(start)
                folder.checkpoint_starts()

        with ThreadPoolExecutor(_THREADS) as threads:
            for done in [threads.submit(delete_often, index) for index in range(_THREADS)]:
                done.result()
        written = offset_checkpoint.decode(read_file(disk, f"{tmp_path}/{offset_checkpoint.LOG_START}"))
        assert written == {("t", index): _ROUNDS for index in range(_THREADS)}
