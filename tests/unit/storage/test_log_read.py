"""Reading: which batches, how many bytes, up to which of the three ends (F1, S5)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.records.batch import read_header
from flintmq.records.markers import Marker
from flintmq.storage import reader
from flintmq.storage.log import Log
from flintmq.storage.segment import segment_index
from flintmq.storage.visibility import Isolation
from support.log.log_bench import PLENTY, Bench, contents
from support.wire.batches import append, produced, split

SEEN, COMMITTED, END = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED, Isolation.LOG_END


def read(log: Log, offset: int, max_bytes: int = PLENTY, *, isolation: Isolation = SEEN) -> bytes | None:
    part = reader.read(log, offset, max_bytes, isolation, at_least_one=True)
    return part.read() if part is not None else None


def unseen(log: Log, batch: bytearray) -> None:
    """Append without raising the high watermark."""
    view = memoryview(batch)
    log.append(view, read_header(view), leader_epoch=0, now_ms=0)


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


# -- how many bytes


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


# -- the three ends


def test_nothing_above_the_high_watermark_is_seen_but_by_replicas() -> None:
    bench = Bench(segment_bytes=600)
    log = bench.log
    batches = [produced(b"%03d" % n + bytes(100)) for n in range(20)]
    for batch in batches:
        unseen(log, batch)
    assert (log.high_watermark, log.last_stable_offset, log.end_offset) == (0, 0, 20)
    assert read(log, 0) is None
    assert contents(log, END) == [bytes(batch) for batch in batches]
    for high_watermark in range(1, 21):
        assert log.advance(high_watermark)
        assert log.high_watermark == high_watermark
        assert contents(log, SEEN) == [bytes(batch) for batch in batches[:high_watermark]]
        assert read(log, high_watermark) is None
    assert not log.advance(20)


def test_an_advance_to_the_middle_of_a_batch_stops_before_it() -> None:
    bench = Bench()
    for _ in range(3):
        unseen(bench.log, produced(b"1", b"2", b"3"))
    bench.log.advance(5)
    assert bench.log.high_watermark == 3
    assert len(contents(bench.log, SEEN)) == 1


def test_a_reader_of_committed_records_stops_at_the_first_open_transaction() -> None:
    bench = Bench()
    log = bench.log
    plain = [produced(b"plain")]
    append(log, plain[0])
    append(log, produced(b"open", producer_id=5, epoch=0, sequence=0, is_transactional=True))
    append(log, produced(b"after"))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert contents(log, COMMITTED) == [bytes(plain[0])]
    assert len(contents(log, SEEN)) == 3
    log.producers.end_transaction(Marker(5, 0, 0, committed=True), 0)
    assert log.last_stable_offset == 3


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


# -- holes


def test_an_offset_that_compaction_took_away_leads_to_the_next_that_is_there() -> None:
    bench = Bench(segment_bytes=400, cleanup_policy=("compact",))
    bench.fill(2)
    bench.log.end_offset = 10
    bench.log.roll(0)
    tail = bench.fill(1)
    for offset in range(2, 11):
        assert read(bench.log, offset) == tail[0]


# -- damage


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
