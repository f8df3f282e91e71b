"""When a segment is followed by the next: by size, by age, by its indexes (Z4, F1)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import append, produced


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
