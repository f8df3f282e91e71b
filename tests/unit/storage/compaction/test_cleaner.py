"""A whole pass over files: groups, damage, crashes, and what is left behind (Z7, S5, R2)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flintmq.effects import read_file, write_plainly
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.records.compression import Codec
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted
from flintmq.storage.compaction.cleaner import clean
from flintmq.storage.compaction.job import (
    CompactionDamage,
    CompactionFailure,
    CompactionJob,
    CompactionProgress,
    CompactionSummary,
    GroupResult,
    SegmentInput,
    decode_event,
    decode_job,
    encode_event,
    encode_job,
)
from flintmq.storage.compaction.swap import CLEANED
from flintmq.storage.segment import LOG, TXN_INDEX
from flintmq.testing.simulation import SimulatedDisk
from support.log.on_real_disk import DIRECTORY, NOW_MS, LogOnDisk
from support.wire.batches import split

ALL_FILES = (".index", ".log", ".timeindex", ".txnindex")


def three_segments(log: LogOnDisk) -> LogOnDisk:
    for value in (b"1", b"2", b"3"):
        log.append([(b"a", value), (b"b", value)])
        log.append([(b"only-" + value, value)])
        log.roll()
    return log


def files(log: LogOnDisk) -> dict[str, bytes]:
    return {name: read_file(log.disk, f"{DIRECTORY}/{name}") for name in log.disk.list(DIRECTORY)}


def groups(events: Sequence[object]) -> list[GroupResult]:
    return [event for event in events if isinstance(event, GroupResult)]


def test_segments_are_cleaned_into_one_that_is_described_as_it_is() -> None:
    log = three_segments(LogOnDisk())
    before = sum(segment.size for segment in log.job().segments)
    events = log.clean()
    (result,) = groups(events)
    data = read_file(log.disk, log.path(0, LOG))
    headers = [header for header, _ in split(data)]
    assert log.pairs() == [
        (b"only-1", b"1"),
        (b"only-2", b"2"),
        (b"a", b"3"),
        (b"b", b"3"),
        (b"only-3", b"3"),
    ]
    assert result == GroupResult(
        bases=(0, 3, 6),
        size=len(data),
        first_timestamp=headers[0].max_timestamp,
        max_timestamp=max(header.max_timestamp for header in headers),
        max_timestamp_offset=7,
        index_bytes=max(log.disk.size(log.path(0, suffix)) for suffix in (".index", ".timeindex")),
        last_offset=8,
        has_transaction_index=False,
        bytes_before=before,
        records_before=9,
        records_after=5,
    )
    assert events[-1] == CompactionSummary(
        next_dirty_offset=9,
        keys=5,
        key_capacity=39321,
        bytes_before=before,
        bytes_after=len(data),
        records_before=9,
        records_after=5,
        keyless_records=0,
    )


def test_groups_are_made_one_after_the_other() -> None:
    log = three_segments(LogOnDisk())
    events = clean(log.disk, log.job(segment_bytes=1))
    first = next(event for event in events if isinstance(event, GroupResult))
    # The next one is not begun before the caller asks for it, so that this one can be swapped in.
    assert [name for name in log.disk.list(DIRECTORY) if name.endswith(CLEANED)] == [
        f"{0:020d}{suffix}{CLEANED}" for suffix in (".index", ".log", ".timeindex")
    ]
    log.swap(first)
    assert [result.bases for result in groups(list(events))] == [(3,), (6,)]


def test_a_group_with_nothing_left_is_a_segment_of_no_bytes() -> None:
    log = LogOnDisk()
    log.append([(b"a", b"1")])
    log.roll()
    log.append([(b"a", b"2")])
    log.roll()
    first, second = groups(log.clean(segment_bytes=1))
    assert (first.size, first.last_offset, first.max_timestamp, first.records_after) == (0, -1, -1, 0)
    assert second.records_after == 1
    assert read_file(log.disk, log.path(0, LOG)) == b""


def test_batches_larger_than_a_chunk_are_cleaned_like_others() -> None:
    log = LogOnDisk()
    large = bytes(3 * 1024 * 1024)
    log.append([(b"a", b"old")])
    log.append([(b"a", large), (b"b", b"1")])
    log.append([(b"b", b"2")])
    log.roll()
    assert isinstance(log.clean()[-1], CompactionSummary)
    assert log.pairs() == [(b"a", large), (b"b", b"2")]


def test_the_same_job_gives_the_same_bytes() -> None:
    made = []
    for _ in range(2):
        log = three_segments(LogOnDisk())
        log.append([(b"c", None)] * 3, codec=Codec.ZSTD)
        log.roll()
        log.clean(segment_bytes=200)
        made.append(files(log))
    assert made[0] == made[1]


def test_keys_that_do_not_fit_are_left_to_the_next_pass() -> None:
    log = three_segments(LogOnDisk())
    log.append([(b"a", b"4"), (b"only-1", b"4")])
    log.roll()
    dirty, passes = 0, 0
    while dirty < 11:
        summary = log.clean(dirty, dedupe_bytes=72, load_factor=1.0)[-1]
        assert isinstance(summary, CompactionSummary)
        assert summary.key_capacity == 3
        assert summary.next_dirty_offset > dirty
        dirty = summary.next_dirty_offset
        passes += 1
    assert passes > 1
    assert log.pairs() == [
        (b"only-2", b"2"),
        (b"b", b"3"),
        (b"only-3", b"3"),
        (b"a", b"4"),
        (b"only-1", b"4"),
    ]


def test_an_open_transaction_within_the_last_segment_supersedes_nothing() -> None:
    log = LogOnDisk()
    log.append([(b"a", b"committed")])
    begun = log.append(
        [(b"a", b"open")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.roll()
    log.clean(0, begun.base_offset)
    assert log.pairs() == [(b"a", b"committed"), (b"a", b"open")]


def test_aborted_data_supersedes_nothing_though_its_marker_is_in_a_later_segment() -> None:
    log = LogOnDisk()
    log.append([(b"a", b"committed")])
    log.append([(b"a", b"no")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    log.append_marker(1, 1, abort=True)
    assert log.job().aborted == (AbortedTransaction(1, 1, 2, 3),)
    log.clean()
    assert log.pairs() == [(b"a", b"committed")]


def test_a_transaction_aborted_before_the_dirty_part_does_not_make_the_next_one_aborted() -> None:
    log = LogOnDisk()
    options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    log.append([(b"a", b"no")], base_sequence=0, **options)
    log.append_marker(1, 0, abort=True)
    log.append([(b"a", b"old")])
    log.append([(b"a", b"new")], base_sequence=1, **options)
    log.append_marker(1, 3, abort=False)
    log.roll()
    log.clean(2)
    assert log.pairs() == [(b"a", b"new")]


def test_index_of_aborted_transactions_goes_to_the_segment_of_the_marker_and_away_with_the_data() -> None:
    log = LogOnDisk()
    log.append([(b"a", b"no")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll()
    log.append_marker(1, 0, abort=True)
    log.roll()
    (result,) = groups(log.clean())
    assert result.has_transaction_index
    assert decode_aborted(read_file(log.disk, log.path(0, TXN_INDEX))) == [AbortedTransaction(1, 0, 1, 2)]
    log.append([(b"b", b"1")])
    log.roll()
    (result,) = groups(log.clean(2))
    assert not result.has_transaction_index
    assert not log.disk.exists(log.path(0, TXN_INDEX))


def test_a_job_without_a_dirty_part_lets_expired_tombstones_go() -> None:
    log = LogOnDisk()
    log.append([(b"a", None), (b"b", b"1")])
    log.append([(b"c", b"1")])
    log.roll()
    log.clean(now_ms=NOW_MS)
    log.clean(3, now_ms=NOW_MS + 999)
    assert (b"a", None) in log.pairs()
    log.clean(3, now_ms=NOW_MS + 1000)
    assert log.pairs() == [(b"b", b"1"), (b"c", b"1")]


def test_nothing_to_clean_is_no_work() -> None:
    assert [type(event) for event in LogOnDisk().clean()] == [CompactionProgress, CompactionSummary]


# ---- damage


def damage_in(log: LogOnDisk, *, segment_bytes: int = 1) -> CompactionDamage:
    before = {name: data for name, data in files(log).items() if not name.endswith(CLEANED)}
    events = list(clean(log.disk, log.job(segment_bytes=segment_bytes)))
    assert isinstance(events[-1], CompactionDamage)
    after = files(log)
    kept = {f"{base:020d}" for event in groups(list(events)) for base in event.bases}
    assert {name: after[name] for name in before} == before
    assert {name.partition(".")[0] for name in after.keys() - before.keys()} == kept
    return events[-1]


def flip(log: LogOnDisk, base: int, position: int) -> None:
    data = bytearray(read_file(log.disk, log.path(base, LOG)))
    data[position] ^= 0x01
    write_plainly(log.disk, log.path(base, LOG), data)


def test_a_batch_that_fails_its_crc_ends_the_pass_and_is_named() -> None:
    log = three_segments(LogOnDisk())
    flip(log, 3, HEADER_SIZE + 5)
    found = damage_in(log)
    assert found == CompactionDamage(
        segment=3,
        position=0,
        first_offset=3,
        end_offset=5,
        checksum_is_right=False,
        reason="The batch fails its CRC.",
    )


def test_damage_to_the_last_batch_reaches_to_the_next_segment() -> None:
    log = three_segments(LogOnDisk())
    first = read_header(read_file(log.disk, log.path(3, LOG)))
    flip(log, 3, first.size + HEADER_SIZE + 1)
    found = damage_in(log)
    assert (found.segment, found.position, found.first_offset, found.end_offset) == (3, first.size, 5, 6)


@pytest.mark.parametrize("at", [8, 9, 16, 23])
def test_a_header_that_makes_no_sense_is_damage(at: int) -> None:
    log = three_segments(LogOnDisk())
    data = bytearray(read_file(log.disk, log.path(3, LOG)))
    data[at] = 0xFF
    write_plainly(log.disk, log.path(3, LOG), data)
    found = damage_in(log)
    assert (found.segment, found.position, found.first_offset) == (3, 0, 3)
    assert not found.checksum_is_right


def test_a_segment_shorter_than_the_broker_says_is_damage() -> None:
    log = three_segments(LogOnDisk())
    job = log.job()
    last = job.segments[-1]
    longer = replace(job, segments=(*job.segments[:-1], SegmentInput(last.base_offset, last.size + 70)))
    found = list(clean(log.disk, longer))[-1]
    assert isinstance(found, CompactionDamage)
    assert (found.segment, found.position, found.first_offset) == (6, last.size, 9)


def test_records_that_cannot_be_read_are_damage_with_a_right_checksum() -> None:
    log = three_segments(LogOnDisk())
    # A control batch needs a type; this one has a key that is too short for it.
    log.append([(b"x", b"1")], is_control=True)
    log.roll()
    found = damage_in(log)
    assert found.checksum_is_right
    assert (found.segment, found.first_offset, found.end_offset) == (9, 9, 10)


def test_damage_in_the_clean_part_is_found_while_it_is_rewritten() -> None:
    log = three_segments(LogOnDisk())
    flip(log, 3, HEADER_SIZE + 5)
    events = list(clean(log.disk, log.job(6, segment_bytes=1)))
    assert [result.bases for result in groups(list(events))] == [(0,)]
    assert isinstance(events[-1], CompactionDamage)


# ---- a world that fails


def test_a_full_disk_leaves_nothing_of_the_group_behind() -> None:
    disk = SimulatedDisk(1)
    log = three_segments(LogOnDisk(disk))
    before = files(log)
    disk.free_bytes = 100
    with pytest.raises(OSError, match="space") as caught:
        list(clean(disk, log.job()))
    assert caught.value.errno == errno.ENOSPC
    assert files(log) == before


def test_left_overs_of_a_process_that_died_are_replaced() -> None:
    log = three_segments(LogOnDisk())
    for suffix in ALL_FILES:
        write_plainly(log.disk, f"{DIRECTORY}/{0:020d}{suffix}{CLEANED}", bytes(5000))
    log.clean()
    expected = three_segments(LogOnDisk())
    expected.clean()
    assert files(log) == files(expected)


class _Power(Exception):
    pass


def test_a_crash_at_any_step_leaves_the_log_and_cleaned_files_only() -> None:
    steps = 0
    while True:
        disk = SimulatedDisk(steps)
        log = three_segments(LogOnDisk(disk))
        disk.sync_all()
        before = files(log)
        countdown = steps

        def observe(_operation: str, _path: str) -> None:
            nonlocal countdown
            countdown -= 1
            if countdown < 0:
                raise _Power

        disk.observer = observe
        try:
            for event in clean(disk, log.job()):
                if isinstance(event, GroupResult):
                    break
        except _Power:
            pass
        disk.observer = None
        finished = countdown >= 0
        log.disk = disk.crash()
        after = files(log)
        assert {name: after[name] for name in before} == before
        others = after.keys() - before.keys()
        assert all(name.endswith(CLEANED) for name in others)
        if finished:
            break
        steps += 1
    # Once the segment is reported it is whole on the disk.
    assert steps > 5
    assert sorted(others) == [f"{0:020d}{suffix}{CLEANED}" for suffix in (".index", ".log", ".timeindex")]
    expected = three_segments(LogOnDisk())
    expected.clean()
    assert {name.removesuffix(CLEANED): after[name] for name in others} == {
        name: data for name, data in files(expected).items() if name.startswith(f"{0:020d}")
    }


# ---- messages


def test_jobs_and_events_survive_the_way_through_json() -> None:
    log = three_segments(LogOnDisk())
    job: CompactionJob = log.job(
        producers={7: (1, 5), 8: (0, -1)}, aborted=(AbortedTransaction(1, 2, 3, 4),), bytes_per_second=5
    )
    assert decode_job(encode_job(job)) == job
    told = [*log.clean(), CompactionFailure(reason="no space"), damage()]
    assert [decode_event(encode_event(event)) for event in told] == told
    assert all(encode_event(event).count(b"\n") == 1 for event in told)


def damage() -> CompactionDamage:
    return CompactionDamage(
        segment=1, position=2, first_offset=3, end_offset=4, checksum_is_right=True, reason="two\nlines"
    )
