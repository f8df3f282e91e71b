"""Lookups by time: the first record that is not older, and the newest of all (issue: ListOffsets, KIP-734)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.records.compression import Codec
from flintmq.records.record import build_batch
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.log import Log
from flintmq.storage.timestamp_lookup import offset_for_time, offset_of_max_timestamp
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import append, produced


def offset_at(log: Log, timestamp: int) -> int | None:
    found = offset_for_time(log, timestamp)
    return found.offset if found else None


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("interval", [0, 600, 1 << 20])
def test_the_first_record_that_is_not_older_is_found(interval: int, flushed: bool) -> None:
    bench = Bench(segment_bytes=1500, index_interval_bytes=interval)
    bench.fill(60, step_ms=10)
    if flushed:
        bench.flush()
    for offset in range(60):
        assert offset_at(bench.log, NOW_MS + offset * 10) == offset
        assert offset_at(bench.log, NOW_MS + offset * 10 - 9) == offset
    assert offset_at(bench.log, 0) == 0
    assert offset_at(bench.log, NOW_MS + 591) is None


def test_times_out_of_order_give_the_first_offset_not_the_nearest_time() -> None:
    bench = Bench(segment_bytes=400)
    times = [50, 10, 40, 90, 20, 30, 60, 95, 5]
    for time in times:
        append(bench.log, produced(b"x" * 80, timestamp=NOW_MS + time))
    for wanted in range(0, 100, 5):
        expected = next((at for at, time in enumerate(times) if time >= wanted), None)
        assert offset_at(bench.log, NOW_MS + wanted) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_the_record_inside_a_batch_is_found(codec: Codec) -> None:
    bench = Bench()
    records = [(None, b"x", NOW_MS + time, ()) for time in (0, 30, 20, 40)]
    append(bench.log, bytearray(build_batch(records, codec=codec)), epoch=3)
    found = offset_for_time(bench.log, NOW_MS + 20)
    assert found == (NOW_MS + 30, 1, 3)
    assert offset_of_max_timestamp(bench.log) == (NOW_MS + 40, 3, 3)


def test_with_append_time_the_first_record_of_a_batch_stands_for_all() -> None:
    bench = Bench()
    append(bench.log, produced(b"a", b"b", append_time=NOW_MS + 100))
    append(bench.log, produced(b"c", b"d", append_time=NOW_MS + 200))
    assert offset_at(bench.log, NOW_MS + 150) == 2
    assert offset_of_max_timestamp(bench.log) == (NOW_MS + 200, 2, 0)


def test_deleted_records_are_not_found() -> None:
    bench = Bench()
    records = [(None, b"x", NOW_MS + time, ()) for time in (50, 10, 60)]
    append(bench.log, bytearray(build_batch(records)))
    append(bench.log, produced(b"y", timestamp=NOW_MS + 55))
    bench.log.advance_start(1)
    assert offset_at(bench.log, NOW_MS + 50) == 2
    bench.log.advance_start(3)
    assert offset_at(bench.log, 0) == 3


def test_the_newest_record_is_the_first_that_has_the_largest_time_in_any_segment() -> None:
    bench = Bench(segment_bytes=400)
    for time in (10, 90, 20, 90, 30):
        append(bench.log, produced(b"x" * 80, timestamp=NOW_MS + time))
    assert offset_of_max_timestamp(bench.log) == (NOW_MS + 90, 1, 0)


def test_records_without_a_time_are_never_the_newest() -> None:
    bench = Bench()
    append(bench.log, produced(b"x", timestamp=-1))
    assert offset_of_max_timestamp(bench.log) is None
    assert offset_for_time(bench.log, 0) is None


def test_a_header_that_promises_a_later_time_than_its_records_have_does_not_hide_the_batch_after_it() -> None:
    bench = Bench()
    lying = bytearray(build_batch([(None, b"x", NOW_MS, ())]))
    lying[35:43] = (NOW_MS + 500).to_bytes(8, "big")
    append(bench.log, lying)
    append(bench.log, produced(b"y", timestamp=NOW_MS + 400))
    assert offset_at(bench.log, NOW_MS + 300) == 1


def test_a_lookup_that_leads_into_damage_is_refused() -> None:
    bench = Bench()
    bench.fill(5)
    bench.log.corrupt.append(CorruptRange(2, 3))
    assert offset_at(bench.log, NOW_MS + 10) == 1
    with pytest.raises(CorruptionError):
        offset_for_time(bench.log, NOW_MS + 20)
