"""Reading: which batches, how many bytes, and the aborted transactions among them (F1, F6, S5, KIP-98)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Log
from flintmq.storage.segment import segment_index
from flintmq.storage.visibility import Isolation
from support.log.committed import fetch
from support.log.on_simulated_disk import PLENTY, Bench, contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import append, produced, split

A, B, C = 11, 12, 13
SEGMENT = 1 << 20
SEEN = Isolation.READ_UNCOMMITTED


def read(log: Log, offset: int, max_bytes: int = PLENTY, *, isolation: Isolation = SEEN) -> bytes | None:
    part = reader.read(log, offset, max_bytes, isolation, at_least_one=True)
    return part.read() if part is not None else None


@pytest.fixture
def bench() -> TransactionalBench:
    return TransactionalBench(segment_bytes=SEGMENT)


def test_an_offset_inside_a_batch_gives_the_whole_batch_and_what_follows() -> None:
    bench = Bench()
    first, second = produced(b"0", b"1", b"2"), produced(b"3", b"4")
    append(bench.log, first)
    append(bench.log, second)
    for offset in (0, 1, 2):
        assert read(bench.log, offset) == bytes(first + second)
    for offset in (3, 4):
        assert read(bench.log, offset) == bytes(second)
    assert read(bench.log, 5) is None


@pytest.mark.parametrize("offset", [-1, 6])
def test_offsets_outside_the_log_are_refused(offset: int) -> None:
    bench = Bench()
    bench.fill(5)
    with pytest.raises(RequestError) as refused:
        read(bench.log, offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("interval", [0, 500, 1 << 20])
def test_the_way_over_recent_batches_and_the_way_over_the_index_lead_to_the_same_bytes(interval: int) -> None:
    bench = Bench(segment_bytes=20_000, index_interval_bytes=interval)
    bench.fill(200)
    log = bench.log
    assert log.recent_positions
    with_shortcut = [read(log, offset, 700) for offset in range(200)]
    log.recent_positions.clear()
    assert [read(log, offset, 700) for offset in range(200)] == with_shortcut


def test_indexes_in_memory_and_in_files_lead_to_the_same_bytes() -> None:
    bench = Bench(segment_bytes=2000, index_interval_bytes=300)
    bench.fill(100)
    assert all(segment.offset_index is not None for segment in bench.log.segments)
    before = [read(bench.log, offset, 500) for offset in range(100)]
    bench.flush()
    assert [segment.offset_index is None for segment in bench.log.segments[:-1]] == [True] * (
        len(bench.log.segments) - 1
    )
    assert [read(bench.log, offset, 500) for offset in range(100)] == before


def test_at_most_so_many_bytes_perhaps_ending_inside_a_batch() -> None:
    bench = Bench()
    written = bench.fill(10)
    size = len(written[0])
    assert read(bench.log, 0, 2 * size + 5) == b"".join(written)[: 2 * size + 5]


def test_a_first_batch_larger_than_allowed_comes_whole_if_asked_and_else_not_at_all() -> None:
    bench = Bench()
    first, *_ = bench.fill(3)
    log = bench.log
    for max_bytes in (0, 1, len(first) - 1):
        assert read(log, 0, max_bytes) == first
        assert reader.read(log, 0, max_bytes, SEEN, at_least_one=False) is None
    log.recent_positions.clear()
    assert read(log, 0, 1) == first
    assert reader.read(log, 0, 1, SEEN, at_least_one=False) is None


def test_a_read_ends_with_its_segment() -> None:
    bench = Bench(segment_bytes=1000)
    written = bench.fill(20)
    following = bench.bases()[1]
    assert read(bench.log, 0) == b"".join(written[:following])
    assert contents(bench.log) == written


def test_an_offset_that_compaction_took_away_leads_to_the_next_that_is_there() -> None:
    bench = Bench(segment_bytes=400, cleanup_policy=("compact",))
    bench.fill(2)
    bench.log.end_offset = 10
    bench.log.roll(0)
    tail = bench.fill(1)
    for offset in range(2, 11):
        assert read(bench.log, offset) == tail[0]


def damage(bench: Bench, offset: int, *, at: int = -1, mask: int = 0xFF) -> None:
    segment = bench.log.segments[segment_index(bench.log.segments, offset)]
    found = segment.locate(bench.disk, offset)
    assert found is not None
    position, header = found
    bench.disk.flip(segment.path(".log"), position + (at % header.size), mask)


def test_a_damaged_batch_is_found_on_reading_where_asked_and_refused_from_then_on() -> None:
    bench = Bench()
    written = bench.fill(5)
    damage(bench, 2)
    part = reader.read(bench.log, 0, PLENTY, SEEN, at_least_one=True)
    assert part is not None
    with pytest.raises(CorruptionError, match="2 to 2"):
        reader.verify(bench.log, part)
    with pytest.raises(CorruptionError):
        read(bench.log, 2)
    assert read(bench.log, 0) == b"".join(written[:2])
    assert read(bench.log, 3) == b"".join(written[3:])
    bench.log.advance_start(3)
    assert bench.log.corrupt == []


@pytest.mark.parametrize("at", [0, 7, 8, 11, 16, 17, 21, 60, 70])
def test_damage_to_any_field_that_matters_is_found_on_reading(at: int) -> None:
    bench = Bench()
    bench.fill(5)
    damage(bench, 2, at=at, mask=0x80)
    part = reader.read(bench.log, 0, PLENTY, SEEN, at_least_one=True)
    assert part is not None
    with pytest.raises(CorruptionError):
        reader.verify(bench.log, part)


def test_a_sound_range_passes_even_if_it_ends_inside_a_batch() -> None:
    bench = Bench()
    size = len(bench.fill(5)[0])
    for max_bytes in (size, size + 30, 2 * size - 1):
        part = reader.read(bench.log, 0, max_bytes, SEEN, at_least_one=True)
        assert part is not None
        reader.verify(bench.log, part)


def test_a_length_that_leads_nowhere_is_corruption_and_not_an_endless_walk() -> None:
    bench = Bench(index_interval_bytes=1 << 20)
    bench.fill(5)
    bench.disk.open(bench.path(0, ".log")).pwrite((-12).to_bytes(4, "big", signed=True), 8)
    bench.log.recent_positions.clear()
    with pytest.raises(CorruptionError):
        read(bench.log, 3)


def test_what_is_split_for_these_tests_is_what_was_written() -> None:
    bench = Bench()
    written = bench.fill(3)
    data = read(bench.log, 0)
    assert data is not None
    assert [batch for _, batch in split(data + data[:10])] == written


# -- aborted transactions


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
