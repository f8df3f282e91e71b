"""When retention is near what somebody still needs, and how far it is held back (P4, Z7)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.storage.retention import RetentionReason, expired_segments
from flintmq.storage.retention_hold import HeldRetention, hold_back, is_endangered
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import append, produced

HOUR = 3_600_000


def log_of(*ages_ms: int, **config: Any) -> Bench:
    """A segment of one record for each age, the last one active, all of the same size."""
    bench = Bench(**config)
    for number, age_ms in enumerate(ages_ms):
        if number:
            bench.log.roll(NOW_MS)
        append(bench.log, produced(b"value", timestamp=NOW_MS - age_ms))
    return bench


def held(bench: Bench, needed_offset: int, now_ms: int = NOW_MS) -> HeldRetention:
    expired = expired_segments(bench.log, now_ms)
    assert expired is not None
    return hold_back(bench.log, expired, needed_offset)


# ---- near


def test_a_segment_is_endangered_in_the_last_quarter_of_its_time() -> None:
    log = log_of(0, 0, retention_ms=4 * HOUR).log
    assert not is_endangered(log, NOW_MS + 3 * HOUR, 0)
    assert is_endangered(log, NOW_MS + 3 * HOUR + 1, 0)
    assert is_endangered(log, NOW_MS + 9 * HOUR, 0)


def test_what_counts_is_the_oldest_segment_with_a_needed_record() -> None:
    log = log_of(4 * HOUR, 2 * HOUR, 0, retention_ms=5 * HOUR).log
    assert is_endangered(log, NOW_MS, 0)
    assert not is_endangered(log, NOW_MS, 1)
    assert not is_endangered(log, NOW_MS, 3)
    assert is_endangered(log, NOW_MS + 2 * HOUR, 1)


def test_one_who_has_all_is_never_endangered() -> None:
    log = log_of(9 * HOUR, 9 * HOUR, retention_ms=HOUR, retention_bytes=0).log
    assert is_endangered(log, NOW_MS, 1)
    assert not is_endangered(log, NOW_MS, 2)
    assert not is_endangered(Bench(retention_ms=HOUR).log, NOW_MS, 0)


def test_a_segment_is_endangered_when_a_quarter_of_retention_bytes_more_would_delete_it() -> None:
    bench = log_of(0, 0, 0, 0, retention_ms=-1)
    size = bench.log.segments[0].size
    for limit, is_near in ((4 * size, True), (100 * size, False)):
        bench.reconfigure(retention_ms=-1, retention_bytes=limit)
        assert is_endangered(bench.log, NOW_MS, 0) == is_near, limit
    # Four segments, and a quarter of four more: the first one goes then, the second does not.
    bench.reconfigure(retention_ms=-1, retention_bytes=4 * size)
    assert not is_endangered(bench.log, NOW_MS, 1)


def test_a_log_without_retention_endangers_nothing() -> None:
    assert not is_endangered(log_of(9 * HOUR, 0, retention_ms=-1).log, NOW_MS, 0)
    compacted = log_of(9 * HOUR, 0, cleanup_policy=("compact",), retention_ms=1)
    assert not is_endangered(compacted.log, NOW_MS, 0)


def test_a_segment_of_which_compaction_left_nothing_is_needed_by_nobody() -> None:
    bench = log_of(9 * HOUR, 0, cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    bench.log.segments[0].size, bench.log.segments[0].max_timestamp = 0, -1
    assert not is_endangered(bench.log, NOW_MS, 0)


# ---- held back


def test_without_a_hold_all_goes_and_what_was_needed_is_counted() -> None:
    bench = log_of(9 * HOUR, 9 * HOUR, 9 * HOUR, 0, retention_ms=HOUR)
    expired = expired_segments(bench.log, NOW_MS)
    assert held(bench, 1) == HeldRetention(expired, 0, 0, 2)
    assert held(bench, 3) == HeldRetention(expired, 0, 0, 0)


def test_needed_segments_are_kept_and_others_go() -> None:
    bench = log_of(9 * HOUR, 9 * HOUR, 9 * HOUR, 0, retention_ms=HOUR, flint_lake_hold=1 << 20)
    size = bench.log.segments[0].size
    found = held(bench, 1)
    assert found.expired is not None
    assert (found.expired.start_offset, found.expired.segments, found.expired.size) == (1, 1, size)
    assert (found.expired.reason, found.expired.needs_roll) == (RetentionReason.AGE, False)
    assert (found.held_segments, found.held_bytes, found.lost_records) == (2, 2 * size, 0)
    assert held(bench, 0) == HeldRetention(None, 3, 3 * size, 0)
    assert held(bench, 3) == HeldRetention(expired_segments(bench.log, NOW_MS), 0, 0, 0)


@pytest.mark.parametrize(("room", "kept"), [(0, 0), (1, 1), (1.5, 1), (2, 2), (2.9, 2), (3, 3)])
def test_no_more_is_kept_than_the_hold_allows_and_the_newest_stays(room: float, kept: int) -> None:
    bench = log_of(9 * HOUR, 9 * HOUR, 9 * HOUR, 0)
    size = bench.log.segments[0].size
    bench.reconfigure(retention_ms=HOUR, flint_lake_hold=int(room * size))
    found = held(bench, 0)
    gone = 3 - kept
    assert (found.held_segments, found.held_bytes) == (kept, kept * size)
    assert (found.expired.start_offset if found.expired else 0) == gone
    assert found.lost_records == gone


def test_the_active_segment_is_held_too() -> None:
    bench = log_of(9 * HOUR, 9 * HOUR, retention_ms=HOUR, flint_lake_hold=1 << 20)
    assert held(bench, 0).expired is None
    found = held(bench, 1)
    assert found.expired is not None
    assert (found.expired.start_offset, found.expired.needs_roll, found.held_segments) == (1, False, 1)
    found = held(bench, 2)
    assert found.expired is not None
    assert (found.expired.start_offset, found.expired.needs_roll) == (2, True)


def test_records_that_were_deleted_already_are_not_lost_again() -> None:
    bench = log_of(9 * HOUR, 9 * HOUR, 0, retention_ms=HOUR)
    bench.log.advance_start(1)
    assert held(bench, 0).lost_records == 1


def test_retention_by_size_is_held_back_too() -> None:
    bench = log_of(0, 0, 0, 0)
    size = bench.log.segments[0].size
    bench.reconfigure(retention_ms=-1, retention_bytes=2 * size, flint_lake_hold=size)
    found = held(bench, 0)
    assert found.expired is not None
    assert (found.expired.segments, found.expired.reason) == (1, RetentionReason.SIZE)
    assert (found.held_segments, found.held_bytes, found.lost_records) == (1, size, 1)
