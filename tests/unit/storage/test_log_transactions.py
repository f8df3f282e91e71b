"""Transactions in a log: markers, the last stable offset, and what readers are told of aborted ones (F6, KIP-98)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import read_header
from flintmq.records.markers import ABORT, COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import build_batch, records_of
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.visibility import Isolation
from support.log.committed import fetch
from support.log.log_bench import NOW_MS, PLENTY, contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import split

A, B, C = 11, 12, 13
SEGMENT = 1 << 20


@pytest.fixture
def bench() -> TransactionalBench:
    return TransactionalBench(segment_bytes=SEGMENT)


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


# -- the last stable offset


def test_it_stays_where_the_earliest_open_transaction_began(bench: TransactionalBench) -> None:
    log = bench.log
    bench.send(b"plain")
    bench.send(b"a1", b"a2", producer=A)
    bench.send(b"b", producer=B)
    bench.send(b"plain")
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    bench.commit(A)
    assert log.last_stable_offset == 3
    bench.abort(B)
    assert log.last_stable_offset == log.high_watermark == log.end_offset == 7


def test_readers_of_committed_records_get_nothing_from_it_on(bench: TransactionalBench) -> None:
    bench.send(b"before")
    bench.send(b"a", producer=A)
    bench.send(b"after")
    assert bench.committed() == [b"before"]
    assert reader.read(bench.log, 1, PLENTY, Isolation.READ_COMMITTED, at_least_one=True) is None
    assert reader.read(bench.log, 2, PLENTY, Isolation.READ_COMMITTED, at_least_one=True) is None
    assert len(contents(bench.log, Isolation.READ_UNCOMMITTED)) == 3
    bench.commit(A)
    assert bench.committed() == [b"before", b"a", b"after"]


def test_with_an_open_transaction_in_an_older_segment_the_younger_are_not_read(
    bench: TransactionalBench,
) -> None:
    bench.send(b"before")
    bench.send(b"a", producer=A)
    bench.roll()
    bench.send(b"after")
    bench.flush()
    assert bench.committed() == [b"before"]
    assert bench.committed(2) == []


def test_a_marker_counts_only_when_it_is_visible_itself() -> None:
    """`flush.messages=1`: what was decided could still be lost, and be decided otherwise."""
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT, flush_messages=1)
    log = bench.log
    bench.send(b"a", producer=A)
    bench.send(b"b", producer=B)
    log.advance(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    bench.abort(A)
    bench.commit(B)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    assert bench.committed() == []
    log.advance(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert bench.committed() == []
    log.advance(4)
    assert log.last_stable_offset == 4
    assert bench.committed() == [b"b"]


def test_a_marker_that_waits_does_not_hold_back_what_lies_before_its_transaction() -> None:
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT)
    bench.send(b"plain")
    bench.send(b"a", producer=A)
    bench.log.advance(2)
    bench.commit(A)
    assert bench.log.last_stable_offset == 1
    bench.visible = True
    bench.send(b"plain")
    assert bench.log.last_stable_offset == bench.log.end_offset == 4


def test_the_next_transaction_of_a_producer_counts_while_the_marker_of_the_last_one_waits() -> None:
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT)
    log = bench.log
    bench.send(b"a", producer=A)
    bench.commit(A)
    bench.send(b"next", producer=A)
    log.advance(1)
    assert log.last_stable_offset == 0
    log.advance(2)
    assert log.last_stable_offset == 2
    log.advance(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 2)


def test_it_is_never_below_the_start_of_the_log(bench: TransactionalBench) -> None:
    """A client that is told where to begin must find something there (KIP-107)."""
    bench.send(b"a", producer=A)
    bench.send(b"plain")
    bench.log.advance_start(2)
    assert bench.log.last_stable_offset == 2
    bench.send(b"plain")
    assert (bench.log.last_stable_offset, bench.log.high_watermark) == (2, 3)
    bench.commit(A)
    assert bench.log.last_stable_offset == 4


# -- what readers are told of aborted transactions


def told(bench: TransactionalBench, offset: int, max_bytes: int = PLENTY) -> list[tuple[int, int]]:
    fetched = fetch(bench.log, offset, max_bytes)
    assert fetched is not None
    return [(one.producer_id, one.first_offset) for one in fetched.aborted]


def interleaved(bench: TransactionalBench, *, rolls: bool) -> None:
    """A aborts 0 to 4, B commits, C aborts 3 to 8; with `rolls`, each pair of batches in a segment."""
    steps: list[Callable[[], object]] = [
        lambda: bench.send(b"a0", producer=A),
        lambda: bench.send(b"b1", producer=B),
        lambda: bench.send(b"a2", producer=A),
        lambda: bench.send(b"c3", producer=C),
        lambda: bench.abort(A),
        lambda: bench.send(b"a5", producer=A),
        lambda: bench.commit(B),
        lambda: bench.commit(A),
        lambda: bench.abort(C),
        lambda: bench.send(b"p9"),
    ]
    for number, step in enumerate(steps):
        if rolls and number and number % 2 == 0:
            bench.roll()
        step()


COMMITTED = [b"b1", b"a5", b"p9"]


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("state", ["in memory", "flushed", "stopped", "killed"])
def test_aborted_records_are_passed_over_from_every_offset_and_in_pieces_of_any_size(
    rolls: bool, state: str
) -> None:
    bench = TransactionalBench(segment_bytes=SEGMENT)
    interleaved(bench, rolls=rolls)
    index = bench.aborted()
    if state == "flushed":
        bench.flush()
    elif state == "stopped":
        bench.close()
        bench.open(clean=True, recovery_point=bench.log.end_offset)
    elif state == "killed":
        bench.open()
    for offset in range(bench.log.end_offset):
        expected = [key for key in COMMITTED if int(key[1:]) >= offset]
        for max_bytes in (1, 200, 400, PLENTY):
            assert bench.committed(offset, max_bytes) == expected, (offset, max_bytes)
    assert bench.aborted() == index
    base_of = {4: 4, 8: 8} if rolls else {4: 0, 8: 0}
    assert [base for base, entries in index.items() for _ in entries] == list(base_of.values())


def test_an_entry_says_where_the_log_was_stable_once_its_marker_was_there(bench: TransactionalBench) -> None:
    interleaved(bench, rolls=False)
    assert bench.aborted()[0] == [AbortedTransaction(A, 0, 4, 1), AbortedTransaction(C, 3, 8, 9)]


def test_a_reader_is_told_of_those_that_reach_into_its_range_and_of_no_others(
    bench: TransactionalBench,
) -> None:
    interleaved(bench, rolls=False)
    assert told(bench, 0) == [(A, 0), (C, 3)]
    # Only the first batch: the index has an entry for the second at the earliest.
    assert told(bench, 0, max_bytes=1) == [(A, 0)]
    # Beyond the marker of A its transaction is of no concern.
    assert told(bench, 5) == [(C, 3)]
    assert told(bench, 9) == []


def test_an_entry_in_a_later_segment_is_found(bench: TransactionalBench) -> None:
    bench.send(b"a", producer=A)
    for _ in range(3):
        bench.roll()
        bench.send(b"plain")
    bench.abort(A)
    bench.flush()
    assert told(bench, 0) == [(A, 0)]
    assert bench.committed() == [b"plain"] * 3


def test_the_search_ends_where_all_was_stable() -> None:
    """Entries far behind a range, of transactions that began after it, are not told of."""
    bench = TransactionalBench(segment_bytes=SEGMENT)
    for _ in range(4):
        bench.send(b"a", producer=A)
        bench.abort(A)
        bench.roll()
    for offset in range(0, 8, 2):
        assert told(bench, offset) == [(A, offset)]


def test_the_search_goes_on_past_an_entry_that_began_after_the_range(bench: TransactionalBench) -> None:
    """B is open below the range while A begins and aborts above it: B's entry comes later and must be found."""
    bench.send(b"b", producer=B)
    bench.roll()
    bench.send(b"a", producer=A)
    bench.abort(A)
    bench.roll()
    bench.abort(B)
    assert told(bench, 0) == [(B, 0)]
    assert bench.committed() == []


def test_nothing_is_told_where_nothing_was_aborted(bench: TransactionalBench) -> None:
    bench.send(b"a", producer=A)
    bench.commit(A)
    bench.send(b"plain")
    assert told(bench, 0) == []


def test_entries_go_with_the_segment_of_their_marker(bench: TransactionalBench) -> None:
    bench.send(b"a", producer=A)
    bench.abort(A)
    bench.send(b"b", producer=B)
    start = bench.roll()
    bench.abort(B)
    bench.log.remove_files(bench.log.advance_start(start))
    assert bench.aborted() == {start: [AbortedTransaction(B, 2, 3, 4)]}
    assert bench.committed() == []


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
