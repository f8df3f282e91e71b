"""Appending: offsets, rolling, preallocation, and disks that are full or broken (Z4, F1, R4, R5)."""

from __future__ import annotations

import errno
import logging

import pytest

from flintmq.errors import ErrorCode, LogOffline, RequestError, StorageError
from flintmq.records.batch import read_header
from flintmq.storage import reader
from flintmq.storage.timestamp_lookup import offset_for_time, offset_of_max_timestamp
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedDisk
from support.log.log_bench import DIRECTORY, NOW_MS, PLENTY, Bench, contents
from support.wire.batches import append, produced


def test_a_batch_gets_its_offset_and_epoch_and_is_otherwise_stored_as_it_came() -> None:
    bench = Bench()
    append(bench.log, produced(b"a", b"b", b"c"))
    batch = produced(b"d", b"e")
    sent = bytes(batch)
    appended = append(bench.log, batch, epoch=7)
    assert (appended.base_offset, appended.last_offset, appended.append_time_ms) == (3, 4, -1)
    stored = contents(bench.log)[1]
    header = read_header(stored)
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]
    assert bench.log.end_offset == 5


def test_a_segment_is_followed_by_the_next_when_a_batch_would_not_fit() -> None:
    bench = Bench(segment_bytes=1000)
    size = len(bench.fill(1, size=100)[0])
    bench.fill(30, size=100)
    per_segment = 1000 // size
    assert bench.bases() == list(range(0, 31, per_segment))
    assert all(segment.size <= 1000 for segment in bench.log.segments)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    bench = Bench(segment_bytes=200)
    with pytest.raises(RequestError) as refused:
        append(bench.log, produced(bytes(200)))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert bench.log.end_offset == 0


def test_a_segment_is_followed_by_the_next_when_the_records_times_are_too_far_apart() -> None:
    bench = Bench(segment_ms=1000)
    for timestamp in (0, 500, 1000, 1001, 1500):
        append(bench.log, produced(b"x", timestamp=NOW_MS + timestamp))
    assert bench.bases() == [0, 3]


def test_records_without_a_time_roll_by_the_age_of_the_file() -> None:
    bench = Bench(segment_ms=1000)
    for now_ms in (0, 900, 1001, 1500):
        append(bench.log, produced(b"x", timestamp=-1), now_ms=NOW_MS + now_ms)
    assert bench.bases() == [0, 2]


def test_jitter_makes_a_segment_end_earlier_but_the_same_in_every_run() -> None:
    bench = Bench(segment_ms=1000, segment_jitter_ms=1000)
    jitter_ms = bench.log.active.jitter_ms
    assert 0 < jitter_ms < 1000
    append(bench.log, produced(b"x", timestamp=NOW_MS))
    append(bench.log, produced(b"x", timestamp=NOW_MS + 1000 - jitter_ms))
    assert bench.bases() == [0]
    append(bench.log, produced(b"x", timestamp=NOW_MS + 1001 - jitter_ms))
    assert bench.bases() == [0, 2]
    assert bench.open().segments[0].jitter_ms == jitter_ms


def test_a_full_index_begins_a_new_segment() -> None:
    bench = Bench(segment_index_bytes=36)
    bench.fill(10)
    # Two entries of twelve bytes, and one kept free for the seal; the first batch has none.
    assert bench.bases() == [0, 3, 6, 9]


def test_offsets_in_a_segment_never_exceed_what_an_index_can_say() -> None:
    bench = Bench()
    append(bench.log, produced(b"x"))
    bench.log.end_offset = 0x7FFFFFFF
    append(bench.log, produced(b"x"))
    assert bench.bases() == [0]
    append(bench.log, produced(b"x"))
    assert bench.bases() == [0, 0x80000000]


def test_preallocation_reserves_a_segment_and_takes_the_rest_back_when_it_is_sealed_or_closed() -> None:
    bench = Bench(preallocate=True, segment_bytes=1000)
    written = bench.fill(8, size=100)
    sealed, active = bench.log.segments
    assert bench.disk.size(sealed.path(".log")) == sealed.size < 1000
    assert bench.disk.size(active.path(".log")) == 1000
    bench.close()
    assert bench.disk.size(active.path(".log")) == active.size
    assert contents(bench.open(clean=True)) == written


def test_a_segment_that_was_preallocated_is_cut_even_if_the_setting_changed_meanwhile() -> None:
    bench = Bench(preallocate=True, segment_bytes=1000)
    bench.fill(1, size=100)
    bench.reconfigure(preallocate=False, segment_bytes=1000)
    written = bench.fill(8, size=100)
    bench.close()
    assert contents(bench.open(clean=True))[1:] == written


# -- a disk that is full


def test_without_space_the_batch_is_refused_and_its_part_undone_until_there_is_space_again() -> None:
    bench = Bench()
    written = bench.fill(3)
    size = bench.disk.size(bench.path(0, ".log"))
    bench.disk.free_bytes = 50
    with pytest.raises(StorageError, match="No space left") as refused:
        append(bench.log, produced(bytes(100)))
    assert not isinstance(refused.value, LogOffline)
    assert bench.disk.size(bench.path(0, ".log")) == size
    assert contents(bench.log) == written
    bench.disk.free_bytes = PLENTY
    written += bench.fill(3)
    assert contents(bench.log) == written == contents(bench.open())


def test_without_space_for_the_next_segment_the_last_one_stays_in_use() -> None:
    bench = Bench(segment_bytes=1000, preallocate=True)
    written = bench.fill(5, size=100)
    bench.disk.free_bytes = 700
    for _ in range(3):
        with pytest.raises(StorageError, match="could not be made"):
            bench.fill(1, size=100)
    bench.flush()
    assert bench.bases() == [0]
    assert bench.log.sealed == []
    bench.disk.free_bytes = PLENTY
    written += bench.fill(5, size=100)
    assert bench.bases() == [0, 5]
    assert contents(bench.log) == written == contents(bench.open())


def test_a_producer_snapshot_that_finds_no_space_does_not_stop_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(segment_bytes=400)
    append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=0))
    size = len(produced(bytes(200)))
    bench.disk.free_bytes = 20
    with pytest.raises(StorageError):
        append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=1))
    assert "snapshot" in caplog.text
    bench.disk.free_bytes = size
    append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=1))
    assert bench.open().end_offset == 2


# -- a disk that is broken


def test_a_failed_write_takes_the_log_offline_loudly(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    written = bench.fill(2)
    bench.disk.fail("write")
    with pytest.raises(LogOffline):
        bench.fill(1)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    with pytest.raises(LogOffline):
        bench.fill(1)
    with pytest.raises(LogOffline):
        reader.read(bench.log, 0, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    with pytest.raises(LogOffline):
        offset_for_time(bench.log, 0)
    with pytest.raises(LogOffline):
        offset_of_max_timestamp(bench.log)
    assert contents(bench.open()) == written


def test_a_full_disk_that_cannot_even_be_cut_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.fill(1)
    bench.disk.free_bytes = 10

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(SimulatedDisk, "_resize", refuse)
    with pytest.raises(StorageError):
        bench.fill(1)
    assert bench.log.offline is not None


def test_old_snapshots_are_removed_but_for_a_few() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(40)
    names = [name for name in bench.disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert len(names) == 3
    assert names[-1] == f"{bench.bases()[-1]:020d}.snapshot"
