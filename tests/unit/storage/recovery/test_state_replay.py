"""Transactions in a log that is opened again: after a stop, and after every kind of crash (F6, R1, R2).

Whatever was lost, the aborted transactions of what is left are exactly those of a log that nothing happened to.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.effects import read_file, write_plainly
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted, encode_aborted
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from support.log.on_simulated_disk import DIRECTORY, contents
from support.log.transactional_log import TransactionalBench

A, B, C = 11, 12, 13
COMMITTED = [b"p0", b"b2", b"b6", b"a9", b"p12"]


def story(bench: TransactionalBench) -> None:
    """Three segments, with transactions that reach from one into another. Open at the end: C."""
    bench.send(b"p0")
    bench.send(b"a1", producer=A)
    bench.send(b"b2", producer=B)
    assert bench.roll() == 3
    bench.send(b"a3", producer=A)
    assert bench.abort(A) == 4
    bench.send(b"c5", producer=C)
    bench.send(b"b6", producer=B)
    assert bench.roll() == 7
    assert bench.commit(B) == 7
    assert bench.abort(C) == 8
    bench.send(b"a9", producer=A)
    assert bench.commit(A) == 10
    bench.send(b"c11", producer=C)
    bench.send(b"p12")


ABORTED = {3: [AbortedTransaction(A, 1, 4, 2)], 7: [AbortedTransaction(C, 5, 8, 9)]}
END, STABLE = 13, 11


@pytest.fixture
def bench() -> TransactionalBench:
    bench = TransactionalBench(segment_bytes=1 << 20)
    story(bench)
    return bench


def check(bench: TransactionalBench, producers: bytes) -> None:
    """As it was before it was opened again."""
    log = bench.log
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (END, END, STABLE)
    assert bench.aborted() == ABORTED
    assert log.producers.encode() == producers
    assert bench.committed() == COMMITTED[:-1]
    bench.commit(C)
    assert bench.committed() == [*COMMITTED[:-1], b"c11", b"p12"]


def snapshots(bench: TransactionalBench) -> list[int]:
    return [int(name[:20]) for name in sorted(bench.disk.list(DIRECTORY)) if name.endswith(SNAPSHOT)]


def drop(bench: TransactionalBench, *offsets: int) -> None:
    for offset in offsets:
        bench.disk.remove(bench.path(offset, SNAPSHOT))


def index_of(bench: TransactionalBench, base: int) -> list[AbortedTransaction]:
    return decode_aborted(read_file(bench.disk, bench.path(base, TXN_INDEX)))


# -- files


def test_a_flush_writes_the_index_of_a_sealed_segment_and_a_stop_that_of_the_active_one(
    bench: TransactionalBench,
) -> None:
    bench.flush()
    assert index_of(bench, 3) == ABORTED[3]
    assert not bench.disk.exists(bench.path(0, TXN_INDEX))
    assert not bench.disk.exists(bench.path(7, TXN_INDEX))
    bench.close()
    assert index_of(bench, 7) == ABORTED[7]


def test_it_is_on_disk_before_the_other_indexes_are(bench: TransactionalBench) -> None:
    """They are why a start takes a segment as it is; without a file it takes it that nothing was aborted."""
    renamed: list[str] = []
    bench.disk.observer = lambda operation, path: renamed.append(path) if operation == "rename" else None
    bench.flush()
    bench.disk.observer = None
    mine = [path for path in renamed if f"{3:020d}" in path]
    assert mine == [bench.path(3, suffix) for suffix in (TXN_INDEX, INDEX, TIME_INDEX)]


def test_after_a_stop_all_is_as_it_was(bench: TransactionalBench) -> None:
    producers = bench.log.producers.encode()
    bench.close()
    bench.open(clean=True, recovery_point=END)
    assert bench.report.segments_scanned == 0
    check(bench, producers)


def test_after_a_stop_that_had_not_flushed_what_was_sealed_all_is_as_it_was(
    bench: TransactionalBench,
) -> None:
    producers = bench.log.producers.encode()
    flush = bench.log.prepare_flush()
    flush.run_at_shutdown()
    bench.log.close()
    bench.open(clean=True, recovery_point=END)
    assert bench.report.segments_scanned == 0
    check(bench, producers)


# -- crashes


@pytest.mark.parametrize("recovery_point", [0, 2, 3, 5, 7, 9, 13])
@pytest.mark.parametrize("missing", [(), (7,), (3,), (3, 7)], ids=str)
@pytest.mark.parametrize("flushed", [False, True])
def test_after_a_crash_all_is_as_it_was(
    bench: TransactionalBench, recovery_point: int, missing: tuple[int, ...], flushed: bool
) -> None:
    """Markers and what they end, in segments that are scanned and others, with snapshots before, between, after."""
    producers = bench.log.producers.encode()
    if flushed or recovery_point > 2:
        bench.flush()
    assert snapshots(bench) == [3, 7]
    drop(bench, *missing)
    bench.open(recovery_point=recovery_point)
    check(bench, producers)


def test_a_crash_after_a_stop_and_more_work_rebuilds_what_the_stop_wrote(bench: TransactionalBench) -> None:
    """The snapshot of the stop lies in the middle of the segment that is scanned."""
    bench.close()
    bench.open(clean=True, recovery_point=END)
    bench.send(b"c13", producer=C)
    bench.abort(C)
    producers = bench.log.producers.encode()
    expected = bench.aborted()
    assert [len(entries) for entries in expected.values()] == [1, 2]
    assert snapshots(bench) == [3, 7, 13]
    bench.open(recovery_point=13)
    assert bench.aborted() == expected
    assert bench.log.producers.encode() == producers
    assert bench.committed() == COMMITTED


def test_what_the_newest_snapshot_knows_is_kept_where_older_markers_are_scanned() -> None:
    """Of producers whose records are deleted nobody else knows, and to scan an old segment forgets none."""
    bench = TransactionalBench(segment_bytes=1 << 20)
    bench.send(b"gone", producer=B)
    bench.commit(B)
    bench.send(b"a", producer=A)
    assert bench.roll() == 3
    bench.send(b"a", producer=A)
    bench.abort(A)
    assert bench.roll() == 5
    bench.send(b"plain")
    bench.flush()
    bench.log.remove_files(bench.log.advance_start(3))
    producers = bench.log.producers.encode()
    drop(bench, 3)
    bench.disk.remove(bench.path(3, INDEX))
    bench.open(recovery_point=6, start_offset=3)
    assert bench.report.indexes_rebuilt == 1
    assert bench.log.producers.encode() == producers
    # The transaction of A began in what is deleted; what is left of it is known as aborted.
    assert bench.aborted() == {3: [AbortedTransaction(A, 3, 4, 5)]}
    assert bench.committed() == [b"plain"]


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: b"\0\7" + data[2:], lambda data: bytes(34),
                                   lambda data: encode_aborted([AbortedTransaction(A, 1, 40, 41)])],
                         ids=["cut short", "other version", "zeros", "beyond the segment"])  # fmt: skip
@pytest.mark.parametrize("base", [3, 7])
def test_a_damaged_index_is_rebuilt(
    bench: TransactionalBench, spoil: Callable[[bytes], bytes], base: int
) -> None:
    producers = bench.log.producers.encode()
    bench.close()
    path = bench.path(base, TXN_INDEX)
    write_plainly(bench.disk, path, spoil(read_file(bench.disk, path)))
    bench.open(clean=True, recovery_point=END)
    assert bench.report.segments_scanned == 1
    check(bench, producers)
    bench.close()
    assert index_of(bench, base)[0] == ABORTED[base][0]


def test_a_damaged_index_stays_until_it_is_replaced(bench: TransactionalBench) -> None:
    """A crash before that must not leave a segment that looks as if nothing in it was aborted."""
    bench.close()
    write_plainly(bench.disk, bench.path(3, TXN_INDEX), b"damaged")
    bench.open(clean=True, recovery_point=END)
    bench.open(recovery_point=END)
    assert bench.aborted() == ABORTED
    bench.flush()
    bench.open(recovery_point=END)
    assert bench.report.indexes_rebuilt == 0
    assert bench.aborted() == ABORTED


@pytest.mark.parametrize("changes", range(1, 20))
@pytest.mark.parametrize("at_stop", [False, True])
def test_a_crash_while_indexes_are_rebuilt_leaves_no_aborted_record_to_readers(
    changes: int, at_stop: bool
) -> None:
    """All index files of a segment below the recovery point are lost; the flush that replaces them dies half way."""
    bench = TransactionalBench(segment_bytes=1 << 20)
    story(bench)
    bench.close()
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        bench.disk.remove(bench.path(3, suffix))
    bench.disk.sync_dir(DIRECTORY)
    bench.open(clean=True, recovery_point=END)
    left = []

    def observe(operation: str, path: str) -> None:
        observe.count += 1  # type: ignore[attr-defined]
        if observe.count == changes:  # type: ignore[attr-defined]
            left.append(bench.disk.crash())

    observe.count = 0  # type: ignore[attr-defined]
    bench.disk.observer = observe
    flush = bench.log.prepare_flush()
    flush.run_at_shutdown() if at_stop else flush.run()
    bench.disk.observer = None
    bench.disk = left[0] if left else bench.disk.crash()
    bench.open(recovery_point=END)
    assert bench.aborted() == ABORTED
    assert bench.committed() == COMMITTED[:-1]


def test_a_torn_marker_leaves_its_transaction_open(bench: TransactionalBench) -> None:
    bench.send(b"b13", producer=B)
    bench.abort(B)
    bench.close()
    file = bench.disk.open(bench.path(7, LOG))
    file.truncate(file.size() - 1)
    bench.open(recovery_point=7)
    log = bench.log
    assert (log.end_offset, log.last_stable_offset) == (14, STABLE)
    assert bench.aborted() == ABORTED
    bench.commit(C)
    assert log.last_stable_offset == 13
    bench.commit(B)
    assert log.last_stable_offset == log.end_offset == 16
    assert bench.committed()[-2:] == [b"p12", b"b13"]


def test_the_index_of_a_cut_segment_tells_no_more_of_what_was_cut() -> None:
    """A stop wrote it; the log was cut by damage; another stop writes none, for nothing is aborted any more."""
    bench = TransactionalBench(segment_bytes=1 << 20)
    bench.send(b"a", producer=A)
    bench.abort(A)
    bench.close()
    file = bench.disk.open(bench.path(0, LOG))
    file.truncate(file.size() - 1)
    bench.open()
    bench.commit(A)
    assert bench.committed() == [b"a"]
    bench.close()
    bench.open(clean=True, recovery_point=bench.log.end_offset)
    assert bench.aborted() == {}
    assert bench.committed() == [b"a"]


def test_segments_dropped_behind_a_cut_take_their_aborted_transactions_with_them(
    bench: TransactionalBench,
) -> None:
    file = bench.disk.open(bench.path(3, LOG))
    file.truncate(file.size() - 1)
    bench.open()
    assert bench.bases() == [0, 3]
    assert bench.aborted() == {3: ABORTED[3]}
    assert (bench.log.end_offset, bench.log.last_stable_offset) == (6, 2)
    bench.abort(C)
    bench.commit(B)
    assert bench.committed() == [b"p0", b"b2"]
    assert bench.aborted() == {3: [*ABORTED[3], AbortedTransaction(C, 5, 6, 2)]}


def test_a_marker_that_makes_no_sense_is_reported_and_the_log_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its CRC is right, so it is what was written."""
    bench = TransactionalBench(segment_bytes=1 << 20)
    bench.send(b"a", producer=A)
    bench.send_control(A, key=b"\0")
    bench.open()
    assert "the marker at offset 1 makes no sense" in caplog.text
    assert (bench.log.end_offset, bench.log.last_stable_offset) == (2, 0)
    assert len(contents(bench.log)) == 2


def test_a_control_batch_of_another_kind_ends_nothing(bench: TransactionalBench) -> None:
    """KIP-595 has some; a reader that does not know them passes over them."""
    bench.send_control(C, key=b"\0\0\0\2")
    bench.open()
    assert bench.log.last_stable_offset == STABLE
