"""Which part of a log may be compacted, and when it is worth it (Z7)."""

from __future__ import annotations

from typing import Any

from flintmq.records.batch import read_header
from flintmq.storage.compaction.planning import cleanable_range, cleaning_due, next_log_to_clean
from flintmq.storage.log import Log
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import append, produced

HOUR = 3_600_000
FOREVER = 1 << 60


def log_of(*ages_ms: int, **config: Any) -> Log:
    """A segment of one record for each age, and an empty active one."""
    bench = Bench(**{"cleanup_policy": ("compact",), "max_compaction_lag_ms": FOREVER, **config})
    for age_ms in ages_ms:
        append(bench.log, produced(b"value", timestamp=NOW_MS - age_ms))
        bench.log.roll(NOW_MS)
    return bench.log


def test_everything_but_the_active_segment_may_be_compacted() -> None:
    log = log_of(3, 2, 1)
    append(log, produced(b"active"))
    found = cleanable_range(log, NOW_MS)
    assert (found.first_dirty_offset, found.end_offset) == (0, 3)
    assert (found.clean_bytes, found.dirty_bytes) == (0, log.size - log.active.size)


def test_what_was_compacted_counts_as_clean() -> None:
    log = log_of(3, 2, 1)
    log.advance_first_dirty(2)
    found = cleanable_range(log, NOW_MS)
    assert (found.first_dirty_offset, found.end_offset) == (2, 3)
    assert (found.clean_bytes, found.dirty_bytes) == (2 * log.segments[0].size, log.segments[0].size)
    assert found.ratio == 1 / 3


def test_a_first_dirty_offset_outside_the_log_means_nothing_is_clean() -> None:
    """After a deletion it lies below the log; above its end only a checkpoint of another log can have it."""
    log = log_of(3, 2, 1)
    log.advance_first_dirty(99)
    assert cleanable_range(log, NOW_MS).first_dirty_offset == 0
    log.advance_first_dirty(1)
    log.advance_start(2)
    found = cleanable_range(log, NOW_MS)
    assert (found.first_dirty_offset, found.end_offset, found.clean_bytes) == (2, 3, 0)


def test_young_records_wait_and_so_does_all_behind_them() -> None:
    log = log_of(3 * HOUR, HOUR // 2, 2 * HOUR, min_compaction_lag_ms=HOUR)
    assert cleanable_range(log, NOW_MS).end_offset == 1
    assert cleanable_range(log, NOW_MS + HOUR).end_offset == 3
    assert cleanable_range(log, NOW_MS, min_lag_ms=0).end_offset == 3


def test_a_clean_segment_does_not_make_the_dirty_ones_wait_for_its_age() -> None:
    log = log_of(0, 3 * HOUR, min_compaction_lag_ms=HOUR)
    assert cleanable_range(log, NOW_MS).end_offset == 0
    log.advance_first_dirty(1)
    assert cleanable_range(log, NOW_MS).end_offset == 2


def test_what_is_not_visible_yet_is_left_alone() -> None:
    log = log_of(3)
    for _ in range(2):
        view = memoryview(produced(b"value"))
        log.append(view, read_header(view), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    assert cleanable_range(log, NOW_MS).end_offset == 1
    log.advance(2)
    assert cleanable_range(log, NOW_MS).end_offset == 2


def test_what_an_open_transaction_began_is_left_alone_with_all_behind_it() -> None:
    log = log_of(3)
    append(log, produced(b"value", producer_id=1, epoch=0, sequence=0, is_transactional=True))
    log.roll(NOW_MS)
    append(log, produced(b"value"))
    log.roll(NOW_MS)
    assert cleanable_range(log, NOW_MS).end_offset == 1


def test_it_is_worth_it_when_the_dirty_share_is_above_the_ratio() -> None:
    log = log_of(4, 3, 2, 1, min_cleanable_dirty_ratio=0.5)
    log.advance_first_dirty(2)
    assert cleaning_due(log, NOW_MS) is None
    log.advance_first_dirty(1)
    found = cleaning_due(log, NOW_MS)
    assert found is not None
    assert found.ratio == 0.75


def test_a_record_that_has_waited_too_long_makes_it_worth_it_whatever_the_ratio() -> None:
    log = log_of(9, 8, 7, 2 * HOUR, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR)
    log.advance_first_dirty(3)
    assert cleaning_due(log, NOW_MS) is not None
    log.advance_first_dirty(0)
    assert cleaning_due(log, NOW_MS) is not None
    assert cleaning_due(log, NOW_MS - 2 * HOUR) is None


def test_nothing_dirty_is_never_worth_it() -> None:
    log = log_of(3 * HOUR, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    log.advance_first_dirty(1)
    append(log, produced(b"active", timestamp=NOW_MS - 3 * HOUR))
    assert cleaning_due(log, NOW_MS) is None
    assert cleanable_range(log, NOW_MS).ratio == 0.0


def test_logs_that_are_not_compacted_or_offline_are_left_alone() -> None:
    assert cleaning_due(log_of(3, cleanup_policy=("delete",)), NOW_MS) is None
    offline = log_of(3)
    assert cleaning_due(offline, NOW_MS) is not None
    offline.go_offline("a test")
    assert cleaning_due(offline, NOW_MS) is None


def test_the_dirtiest_comes_first_and_before_it_what_is_overdue() -> None:
    half, whole = log_of(2, 1), log_of(2, 1)
    half.first_dirty_offset = 1
    overdue = log_of(9, 8, 7, 2 * HOUR, max_compaction_lag_ms=HOUR)
    overdue.first_dirty_offset = 3
    assert next_log_to_clean([half, whole], NOW_MS) is whole
    assert next_log_to_clean([half, overdue, whole], NOW_MS) is overdue
    assert next_log_to_clean([log_of()], NOW_MS) is None
