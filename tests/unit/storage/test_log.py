"""Appending, markers, a moving start, and disks that are full or broken (Z4, F1, F6, R4, R5, KIP-98)."""

from __future__ import annotations

import errno
import logging

import pytest

from flintmq.errors import ErrorCode, LogOffline, RequestError, StorageError
from flintmq.records.batch import read_header
from flintmq.records.markers import ABORT, COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import build_batch, records_of
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Log
from flintmq.storage.timestamp_lookup import offset_for_time, offset_of_max_timestamp
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedDisk
from support.log.on_simulated_disk import NOW_MS, PLENTY, Bench, contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import append, produced, split

A = 11
SEGMENT = 1 << 20


@pytest.fixture
def bench() -> TransactionalBench:
    return TransactionalBench(segment_bytes=SEGMENT)


def read(log: Log, offset: int) -> bytes | None:
    part = reader.read(log, offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    return part.read() if part is not None else None


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


# -- markers


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT), (False, ABORT)])
def test_a_marker_is_a_control_batch_of_its_producer(
    bench: TransactionalBench, commit: bool, kind: int
) -> None:
    bench.send(b"a", producer=A)
    bench.log.append_marker(
        Marker(A, 3, coordinator_epoch=7, committed=commit), bumps_epoch=True, leader_epoch=5, now_ms=NOW_MS
    )
    ((header, batch),) = split(contents(bench.log)[-1])
    (record,) = records_of(batch, limit=PLENTY)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (A, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (1, 5, NOW_MS)
    assert control_type(record.key) == kind
    assert coordinator_epoch(record.value) == 7


def test_a_marker_of_the_past_is_refused_and_nothing_is_written(bench: TransactionalBench) -> None:
    bench.send(b"a", producer=A)
    bench.abort(A)
    bench.send(b"b", producer=A)
    with pytest.raises(RequestError) as error:
        bench.log.append_marker(
            Marker(A, 1, coordinator_epoch=0, committed=True), bumps_epoch=True, leader_epoch=0, now_ms=NOW_MS
        )
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.log.end_offset == 3
    assert bench.log.last_stable_offset == 2


def test_a_marker_that_ends_nothing_changes_nothing_for_readers(bench: TransactionalBench) -> None:
    """Of a partition that was added to a transaction and never written to, or of one that came twice."""
    bench.send(b"plain")
    bench.abort(A)
    assert bench.log.last_stable_offset == bench.log.end_offset == 2
    assert bench.aborted() == {}
    assert bench.committed() == [b"plain"]


def test_a_marker_that_does_not_fit_begins_the_next_segment_and_stands_there(
    bench: TransactionalBench,
) -> None:
    bench.send(b"a", producer=A, size=300)
    bench.reconfigure(segment_bytes=400)
    marker = bench.abort(A)
    assert bench.bases() == [0, 1]
    assert bench.aborted() == {1: [AbortedTransaction(A, 0, marker, 2)]}
    # The snapshot that the new segment began with was taken before its marker.
    assert bench.open(recovery_point=1).producers.first_unstable_offset is None
    assert bench.aborted() == {1: [AbortedTransaction(A, 0, marker, 2)]}


# -- batches of coordinators


def test_a_coordinator_writes_for_a_producer_without_counting(bench: TransactionalBench) -> None:
    """Offsets committed in a transaction: a transaction of the producer, but no sequence of its."""
    log = bench.log

    def commit_offsets() -> None:
        batch = memoryview(
            bytearray(
                build_batch(
                    [(b"offset", b"5", NOW_MS, ())], producer_id=A, producer_epoch=0, is_transactional=True
                )
            )
        )
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=NOW_MS, visible_at_once=True)

    commit_offsets()
    assert log.last_stable_offset == 0
    bench.send(b"a", producer=A)
    commit_offsets()
    bench.send(b"next", producer=A)
    assert log.end_offset == 4
    bench.abort(A)
    assert bench.aborted() == {0: [AbortedTransaction(A, 0, 4, 5)]}
    assert bench.committed() == []
    with pytest.raises(RequestError) as error:
        commit_offsets()
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


# -- the beginning


def test_deleting_records_hides_them_at_once_and_drops_whole_segments() -> None:
    bench = Bench(segment_bytes=1000)
    written = bench.fill(30)
    second, third, *_ = bench.bases()[1:]
    dropped = bench.log.advance_start(third + 1)
    assert [segment.base_offset for segment in dropped] == [0, second]
    bench.log.remove_files(dropped)
    assert bench.log.start_offset == third + 1
    with pytest.raises(RequestError):
        read(bench.log, third)
    assert contents(bench.log) == written[third + 1 :]
    assert not bench.disk.exists(bench.path(0, ".log"))
    assert bench.log.advance_start(third) == [], "the start never goes back"


def test_deleting_everything_leaves_an_empty_log_that_goes_on() -> None:
    bench = Bench(segment_bytes=1000)
    bench.fill(30)
    bench.log.remove_files(bench.log.advance_start(30))
    assert read(bench.log, 30) is None
    written = bench.fill(3)
    assert contents(bench.log) == written


def test_segments_dropped_while_a_flush_runs_do_not_make_it_forget_those_sealed_meanwhile() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(8)
    flush = bench.log.prepare_flush()
    bench.log.remove_files(bench.log.advance_start(bench.bases()[2]))
    flush.run()
    bench.fill(6)
    bench.log.flushed(flush, 0)
    waiting = {sealed.segment.base_offset for sealed in bench.log.sealed}
    assert waiting == {base for base in bench.bases()[:-1] if base >= flush.segment_base}
    assert not [name for name in bench.disk.list("data/orders-0") if name.startswith(f"{0:020d}.")]
    bench.flush()
    assert bench.log.sealed == []
    assert contents(bench.log) == contents(bench.open(recovery_point=14, start_offset=bench.log.start_offset))
