"""A log is cut off where its leader has other batches (KIP-101, S1): in memory, in files, and through crashes."""

from __future__ import annotations

import errno
from random import Random

import pytest

from flintmq.effects import read_file
from flintmq.errors import LogOffline, StorageError
from flintmq.records.batch import read_header
from flintmq.storage import reader
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability.flush import EPOCHS_FILE, NoSpace
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.log import Log
from flintmq.storage.retention import expired_segments
from flintmq.storage.timestamp_lookup import offset_for_time, offset_of_max_timestamp
from flintmq.storage.truncation.notes import NOTE_FILE
from flintmq.storage.truncation.truncation import Truncation
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedDisk
from support.log.on_simulated_disk import DIRECTORY, NOW_MS, PLENTY, Bench, contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import append, produced

A, B = 11, 12


def begin(log: Log, offset: int) -> Truncation:
    truncation = log.begin_truncation(offset, NOW_MS)
    assert truncation is not None
    return truncation


# -- what is left


@pytest.mark.parametrize("offset", range(20))
def test_the_log_ends_where_it_was_cut_and_takes_other_batches_there(offset: int) -> None:
    bench = Bench(segment_bytes=600)
    written = bench.fill(20)
    bench.flush()
    assert len(bench.log.segments) > 3
    bench.truncate(offset)
    log = bench.log
    assert (log.end_offset, log.high_watermark, log.recovery_point) == (offset, offset, offset)
    assert contents(log) == written[:offset]
    written[offset:] = bench.fill(9, size=70)
    assert contents(log) == written
    bench.flush()
    assert contents(bench.open(recovery_point=20)) == written
    bench.close()
    assert contents(bench.open(clean=True)) == written


def test_an_offset_within_a_batch_cuts_before_the_batch() -> None:
    bench = Bench()
    append(bench.log, produced(b"a"))
    for _ in range(2):
        append(bench.log, produced(b"b", b"c", b"d"))
    bench.truncate(6)
    assert bench.log.end_offset == 4


def test_a_log_that_does_not_reach_so_far_stays_as_it_is() -> None:
    bench = Bench()
    bench.fill(3)
    assert bench.log.begin_truncation(3, NOW_MS) is None
    assert bench.log.begin_truncation(8, NOW_MS) is None
    assert (bench.log.generation, bench.log.end_offset) == (0, 3)


def test_a_cut_within_a_gap_keeps_the_gap() -> None:
    """Those offsets were other records' once: they are not given to new ones, not even after a crash."""
    bench = Bench(segment_bytes=300)
    data = bytearray()
    for base in (0, 1, 20, 21):
        batch = produced(bytes(50))
        batch[0:8] = base.to_bytes(8, "big")
        batch[12:16] = bytes(4)
        data += batch
    bench.log.append_replicated(memoryview(data), NOW_MS)
    bench.truncate(10)
    assert bench.log.end_offset == 10
    for _ in range(3):
        assert bench.open(recovery_point=0, high_watermark=0).end_offset == 10
    assert append(bench.log, produced(b"x")).base_offset == 10


def test_epochs_of_what_was_cut_off_are_forgotten_in_memory_and_in_their_file() -> None:
    bench = Bench()
    for epoch in (0, 0, 2, 2, 5, 6):
        append(bench.log, produced(b"v"), epoch=epoch)
    bench.flush()
    bench.truncate(3)
    assert bench.log.epochs.latest == 2
    assert LeaderEpochs.decode(read_file(bench.disk, f"{DIRECTORY}/{EPOCHS_FILE}")).latest == 2
    append(bench.log, produced(b"v"), epoch=4)
    assert bench.log.epochs.end_offset_of(2, 4) == (2, 3)


def test_indexes_and_largest_timestamps_are_those_of_what_is_left() -> None:
    bench = Bench(segment_bytes=100_000)
    bench.fill(40)
    append(bench.log, produced(b"late", timestamp=NOW_MS + 10**6))
    bench.fill(3)
    bench.truncate(30)
    log = bench.log
    assert log.segments[0].max_timestamp == NOW_MS + 29 * 10
    found = offset_of_max_timestamp(log)
    assert found is not None
    assert found.offset == 29
    assert offset_for_time(log, NOW_MS + 10**5) is None
    for offset in range(30):
        position = log.segments[0].locate(log.disk, offset)
        assert position is not None
        assert position[1].base_offset == offset


def test_the_producers_are_those_of_what_is_left_and_snapshots_of_more_are_gone() -> None:
    bench = TransactionalBench(segment_bytes=400)
    for number in range(8):
        bench.send(b"%d" % number, producer=A, size=50)
    bench.abort(A)
    kept = bench.log.end_offset
    before = bench.log.producers.encode()
    bench.send(b"b", producer=B, size=50)
    for number in range(8):
        bench.send(b"%d" % number, producer=A, size=50)
    bench.commit(A)
    bench.flush()
    bench.truncate(kept)
    log = bench.log
    assert log.producers.encode() == before
    assert log.snapshots.newest == log.snapshots.durable_offset == kept
    names = [name for name in bench.disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert max(names) == f"{kept:020d}.snapshot"
    assert bench.aborted() == {log.segments[-2].base_offset: log.segments[-2].aborted}
    assert [one.last_offset for one in log.segments[-2].aborted] == [kept - 1]


def test_a_transaction_whose_marker_is_cut_off_is_open_again() -> None:
    bench = TransactionalBench()
    bench.send(b"a", producer=A)
    bench.send(b"b")
    marker = bench.abort(A)
    assert bench.log.last_stable_offset == marker + 1
    truncation = begin(bench.log, marker)
    # Nobody knows yet which transactions are decided.
    assert bench.log.last_stable_offset == 0
    truncation.run()
    bench.log.finish_truncation(truncation, NOW_MS)
    assert bench.log.last_stable_offset == 0
    assert bench.log.producers.is_in_transaction(A)
    assert not bench.aborted()


def test_a_marker_that_stays_but_is_not_visible_holds_the_last_stable_offset_back() -> None:
    bench = TransactionalBench(visible=False)
    bench.send(b"a", producer=A)
    bench.send(b"b")
    bench.log.advance(2)
    bench.commit(A)
    bench.send(b"c")
    bench.truncate(3)
    assert (bench.log.high_watermark, bench.log.last_stable_offset) == (2, 0)
    assert bench.log.advance(3)
    assert bench.log.last_stable_offset == 3


def test_what_was_known_to_be_damaged_is_forgotten_with_what_was_cut_off() -> None:
    bench = Bench()
    bench.fill(9)
    bench.log.add_corrupt(CorruptRange(1, 2))
    bench.log.add_corrupt(CorruptRange(4, 7))
    bench.log.add_corrupt(CorruptRange(7, 8))
    bench.truncate(5)
    assert bench.log.corrupt == [CorruptRange(1, 2), CorruptRange(4, 5)]


def test_the_high_watermark_can_go_on_to_where_it_was_not_before_the_truncation() -> None:
    bench = Bench()
    for number in range(8):
        view = memoryview(produced(b"%d" % number))
        bench.log.append(view, read_header(view), leader_epoch=0, now_ms=NOW_MS)
    bench.log.advance(2)
    bench.truncate(6)
    assert bench.log.high_watermark == 2
    for offset in (3, 5, 6):
        assert bench.log.advance(offset)
        assert len(contents(bench.log, Isolation.READ_UNCOMMITTED)) == offset


# -- beginning again


def test_a_log_begins_again_beyond_its_end_with_nothing_known() -> None:
    bench = TransactionalBench(segment_bytes=400)
    for _ in range(6):
        bench.send(b"a", producer=A, size=60)
    bench.flush()
    bench.restart(50)
    log = bench.log
    assert (log.start_offset, log.end_offset, log.high_watermark, log.recovery_point) == (50, 50, 50, 50)
    assert len(log.producers) == 0
    assert log.epochs.latest == -1
    assert bench.bases() == [50]
    append(log, produced(b"x"))
    for _ in range(2):
        found = bench.open(recovery_point=6)
        assert (found.start_offset, found.end_offset, len(found.producers)) == (50, 51, 0)


def test_a_cut_below_the_start_begins_again_there() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(9)
    bench.log.remove_files(bench.log.advance_start(6))
    bench.truncate(4)
    assert (bench.log.start_offset, bench.log.end_offset) == (4, 4)
    found = bench.open(recovery_point=9, start_offset=6)
    assert (found.start_offset, found.end_offset) == (4, 4)


def test_files_that_are_removed_late_are_not_those_of_a_new_segment_of_their_name() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(9)
    removed = bench.log.advance_start(6)
    assert removed[0].base_offset == 0
    bench.restart(0)
    bench.log.remove_files(removed)
    bench.fill(2)
    assert bench.open().end_offset == 2


# -- what is under way


def test_readers_keep_the_bytes_that_they_were_given() -> None:
    """KAFKA-18723: a range is being sent while its end is cut off, and other batches take its place."""
    bench = Bench(segment_bytes=700)
    bench.fill(12)
    parts = [
        part
        for offset in range(12)
        if (part := reader.read(bench.log, offset, PLENTY, Isolation.LOG_END, at_least_one=True))
    ]
    data = [part.read() for part in parts]
    for end in (8, 5, 2):
        bench.truncate(end)
        bench.fill(7, size=130)
        bench.flush()
    assert [part.read() for part in parts] == data


def test_a_flush_that_was_prepared_before_changes_nothing() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(9)
    append(bench.log, produced(b"v"), epoch=7)
    late = bench.log.prepare_flush()
    bench.truncate(4)
    append(bench.log, produced(b"v"), epoch=9)
    names = bench.disk.list(DIRECTORY)
    late.run()
    bench.log.flushed(late, NOW_MS)
    assert bench.log.recovery_point == 4
    assert bench.disk.list(DIRECTORY) == names
    assert LeaderEpochs.decode(read_file(bench.disk, f"{DIRECTORY}/{EPOCHS_FILE}")).latest == 0


def test_nothing_else_changes_the_log_until_it_is_finished() -> None:
    bench = Bench(segment_bytes=400, retention_ms=0)
    bench.fill(9)
    truncation = begin(bench.log, 4)
    log = bench.log
    for change in (
        lambda: append(log, produced(b"x")),
        lambda: log.append_replicated(memoryview(b""), NOW_MS),
        lambda: log.begin_truncation(2, NOW_MS),
        lambda: log.begin_restart(2, NOW_MS),
        lambda: log.roll(NOW_MS),
        lambda: log.advance_start(2),
    ):
        with pytest.raises(StorageError, match="being truncated"):
            change()
    assert expired_segments(log, NOW_MS + 10**9) is None
    assert len(contents(log)) == 4
    truncation.run()
    log.finish_truncation(truncation, NOW_MS)
    append(log, produced(b"x"))


def test_the_new_segment_is_not_the_removed_file_of_its_name() -> None:
    """A scrub opens the active segment before its file is made, and finds the one that is about to go."""
    bench = Bench()
    bench.fill(3)
    truncation = begin(bench.log, 0)
    bench.log.active.open()
    truncation.run()
    bench.log.finish_truncation(truncation, NOW_MS)
    written = bench.fill(2)
    assert contents(bench.open()) == written


@pytest.mark.parametrize("operation", ["write", "sync", "sync_dir"])
def test_a_failure_takes_the_log_offline(operation: str) -> None:
    bench = Bench(segment_bytes=400)
    written = bench.fill(9)
    truncation = begin(bench.log, 4)
    bench.disk.fail(operation)  # type: ignore[arg-type]
    with pytest.raises((OSError, StorageError)) as failure:
        truncation.run()
    bench.log.finish_truncation(truncation, NOW_MS, failure.value)
    assert bench.log.offline is not None
    with pytest.raises(LogOffline):
        append(bench.log, produced(b"x"))
    found = contents(bench.open())
    assert len(found) >= 4
    assert found == written[: len(found)]


def test_without_space_it_may_be_run_again() -> None:
    bench = Bench(segment_bytes=400)
    written = bench.fill(9)
    truncation = begin(bench.log, 4)
    bench.disk.fail("write", code=errno.ENOSPC)
    with pytest.raises(NoSpace):
        truncation.run()
    truncation.run()
    bench.log.finish_truncation(truncation, NOW_MS)
    assert contents(bench.log) == written[:4]
    bench.fill(2)


# -- crashes


class _Stopped(Exception):
    pass


def _crash_at(disk: SimulatedDisk, step: int) -> list[str]:
    """Let the process die before the change of the disk with this number; the changes are listed."""
    done: list[str] = []

    def observe(operation: str, path: str) -> None:
        if len(done) == step:
            raise _Stopped
        done.append(f"{operation} {path}")

    disk.observer = observe
    return done


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("journaling", [False, True])
@pytest.mark.parametrize("kind", ["cut", "boundary", "all", "gap", "restart"])
def test_a_crash_at_every_step_leaves_a_prefix_that_grows_again(
    kind: str, journaling: bool, power: bool
) -> None:
    """And another crash after the growth finds it, as far as it was flushed."""
    step, is_finished = 0, False
    while not is_finished:
        for seed in range(3 if power else 1):
            bench = Bench(segment_bytes=600)
            bench.disk.journaling = journaling
            bench.disk._random = Random(seed)
            written = bench.fill(14)
            if kind == "gap":
                batch = produced(bytes(40))
                batch[0:8], batch[12:16] = (40).to_bytes(8, "big"), bytes(4)
                bench.log.append_replicated(memoryview(batch), NOW_MS)
                written.append(bytes(batch))
            bench.flush()
            end = {"cut": 6, "boundary": bench.bases()[2], "all": 0, "gap": 30, "restart": 60}[kind]
            restarts = kind == "restart"
            truncation = bench.log.begin_restart(end, NOW_MS) if restarts else begin(bench.log, end)
            done = _crash_at(bench.disk, step)
            try:
                truncation.run()
                is_finished = True
            except _Stopped:
                pass
            bench.disk.observer = None
            bench.disk = bench.disk.crash() if power else bench.disk.kill()
            # The checkpoint still says what it said before.
            log = bench.open(recovery_point=written_end(written), high_watermark=0)
            context = f"{kind}, before change {step} ({done[-1:]}), seed {seed}"
            found = contents(log)
            if restarts and log.start_offset == 60:
                assert (found, log.end_offset) == ([], 60), context
            else:
                assert found == written[: len(found)], context
                assert log.end_offset >= (0 if restarts else end), context
                assert not is_finished or log.end_offset == end, context
            found += bench.fill(5, size=80)
            bench.flush()
            end_flushed = log.end_offset
            bench.fill(4, size=90)
            bench.disk = bench.disk.crash() if power else bench.disk.kill()
            log = bench.open(recovery_point=end_flushed, high_watermark=0)
            assert contents(log)[: len(found)] == found, context
            assert log.end_offset >= end_flushed, context
            assert not log.corrupt, context
        step += 1
    assert step > 10


def written_end(written: list[bytes]) -> int:
    return read_header(written[-1]).last_offset + 1


@pytest.mark.parametrize("seed", range(20))
def test_what_grew_after_a_truncation_is_not_taken_for_synced(seed: int) -> None:
    """A checkpoint of the recovery point from before would say so; where it is cut the rest must go too."""
    bench = Bench(segment_bytes=600)
    written = bench.fill(14)
    bench.flush()
    bench.truncate(5)
    written[5:] = bench.fill(9, size=80)
    bench.disk._random = Random(seed)
    bench.disk = bench.disk.crash()
    log = bench.open(recovery_point=14, high_watermark=0)
    found = contents(log)
    assert not log.corrupt
    assert found == written[: len(found)]
    assert len(found) >= 5
    assert log.has_truncation_note


def test_the_note_goes_once_checkpoints_know_of_the_truncation() -> None:
    bench = Bench()
    bench.fill(9)
    bench.truncate(5)
    generation = bench.log.generation
    assert bench.log.has_truncation_note
    truncation = begin(bench.log, 3)
    # The checkpoints were taken before this one.
    bench.log.forget_truncation(generation)
    assert bench.disk.exists(f"{DIRECTORY}/{NOTE_FILE}")
    truncation.run()
    bench.log.finish_truncation(truncation, NOW_MS)
    bench.log.forget_truncation(bench.log.generation)
    assert not bench.disk.exists(f"{DIRECTORY}/{NOTE_FILE}")
    assert not bench.log.has_truncation_note


def test_a_clean_stop_leaves_files_that_end_where_the_log_does() -> None:
    bench = Bench(preallocate=True, segment_bytes=2000)
    written = bench.fill(9)
    bench.truncate(5)
    written[5:] = bench.fill(3)
    assert bench.disk.size(bench.path(0, ".log")) == 2000
    bench.close()
    assert not [name for name in bench.disk.list(DIRECTORY) if name.endswith(".cut")]
    assert sum(bench.disk.size(bench.path(base, ".log")) for base in bench.bases()) == sum(map(len, written))
    assert contents(bench.open(clean=True)) == written


def test_a_log_that_begins_again_knows_of_no_damage() -> None:
    bench = Bench()
    bench.fill(4)
    bench.log.add_corrupt(CorruptRange(1, 2))
    bench.restart(100)
    assert not bench.log.corrupt
