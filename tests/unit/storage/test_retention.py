"""Which segments have had their time (Z7): by age, by size, and what is kept whatever its age."""

from __future__ import annotations

from typing import Any

from flintmq.records.batch import read_header
from flintmq.storage.retention import RetentionReason, expired_segments
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import append, produced

HOUR = 3_600_000


def log_of(*ages_ms: int, **config: Any) -> Bench:
    """A segment for each age, the last one active, all of the same size."""
    bench = Bench(**config)
    for number, age_ms in enumerate(ages_ms):
        if number:
            bench.log.roll(NOW_MS)
        append(bench.log, produced(b"value", timestamp=NOW_MS - age_ms))
    return bench


def test_nothing_goes_without_limits() -> None:
    assert (
        expired_segments(log_of(5 * HOUR, 4 * HOUR, 0, retention_ms=-1, retention_bytes=-1).log, NOW_MS)
        is None
    )


def test_whole_segments_go_when_their_newest_record_is_too_old() -> None:
    bench = log_of(3 * HOUR, 2 * HOUR, HOUR // 2, 0, retention_ms=HOUR)
    found = expired_segments(bench.log, NOW_MS)
    assert found is not None
    assert (found.start_offset, found.segments, found.reason, found.needs_roll) == (
        2,
        2,
        RetentionReason.AGE,
        False,
    )
    assert found.size == sum(segment.size for segment in bench.log.segments[:2])


def test_a_record_is_kept_for_the_whole_of_its_time() -> None:
    bench = log_of(HOUR, 0, retention_ms=HOUR)
    assert expired_segments(bench.log, NOW_MS) is None
    assert expired_segments(bench.log, NOW_MS + 1) is not None


def test_a_young_segment_keeps_older_ones_behind_it() -> None:
    assert expired_segments(log_of(0, 5 * HOUR, 0, retention_ms=HOUR).log, NOW_MS) is None


def test_the_active_segment_goes_too_when_all_is_old() -> None:
    found = expired_segments(log_of(3 * HOUR, 2 * HOUR, retention_ms=HOUR).log, NOW_MS)
    assert found is not None
    assert (found.start_offset, found.segments, found.needs_roll) == (2, 2, True)


def test_an_empty_log_has_nothing_to_lose() -> None:
    bench = Bench(retention_ms=HOUR)
    assert expired_segments(bench.log, NOW_MS + 100 * HOUR) is None
    append(bench.log, produced(b"value", timestamp=NOW_MS - 2 * HOUR))
    bench.log.roll(NOW_MS)
    bench.log.advance_start(1)
    assert expired_segments(bench.log, NOW_MS + 100 * HOUR) is None


def test_records_without_a_time_count_from_when_their_segment_was_made() -> None:
    bench = Bench(retention_ms=HOUR)
    append(bench.log, produced(b"value", timestamp=-1))
    bench.log.roll(NOW_MS)
    assert expired_segments(bench.log, NOW_MS + HOUR) is None
    found = expired_segments(bench.log, NOW_MS + HOUR + 1)
    assert found is not None
    assert found.segments == 1


def test_what_is_not_yet_visible_is_kept_whatever_its_age() -> None:
    """A follower or a flush has still to come; deleting it would move the start beyond the high watermark."""
    bench = Bench(retention_ms=HOUR, retention_bytes=1)
    for _ in range(3):
        batch = produced(b"value", timestamp=NOW_MS - 5 * HOUR)
        view = memoryview(batch)
        bench.log.append(view, read_header(view), leader_epoch=0, now_ms=NOW_MS)
        bench.log.roll(NOW_MS)
    assert expired_segments(bench.log, NOW_MS) is None
    bench.log.advance(1)
    found = expired_segments(bench.log, NOW_MS)
    assert found is not None
    assert (found.start_offset, found.segments) == (1, 1)


def test_segments_go_as_long_as_the_wanted_size_is_left() -> None:
    bench = log_of(0, 0, 0, 0, retention_ms=-1)
    size = bench.log.segments[0].size
    for limit, gone in ((4 * size, 0), (4 * size - 1, 0), (3 * size, 1), (2 * size + 1, 1), (2 * size, 2)):
        bench.log.configure(Bench(retention_ms=-1, retention_bytes=limit).log.config)
        found = expired_segments(bench.log, NOW_MS)
        assert (found.segments if found else 0) == gone, limit
        assert found is None or found.reason is RetentionReason.SIZE


def test_the_active_segment_never_goes_by_size() -> None:
    found = expired_segments(log_of(0, 0, retention_ms=-1, retention_bytes=0).log, NOW_MS)
    assert found is not None
    assert (found.start_offset, found.segments, found.needs_roll) == (1, 1, False)


def test_a_log_that_is_only_compacted_keeps_everything() -> None:
    assert (
        expired_segments(log_of(9 * HOUR, 0, cleanup_policy=("compact",), retention_ms=1).log, NOW_MS) is None
    )
    both = log_of(9 * HOUR, 0, cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    assert expired_segments(both.log, NOW_MS) is not None


def test_a_segment_of_which_compaction_left_nothing_keeps_nothing_behind_it() -> None:
    bench = log_of(5 * HOUR, 4 * HOUR, 0, cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    emptied = bench.log.segments[0]
    emptied.size, emptied.max_timestamp = 0, -1
    found = expired_segments(bench.log, NOW_MS)
    assert found is not None
    assert (found.start_offset, found.segments) == (2, 2)
