"""Reading what lies on disk to see whether it is still what was written (S5)."""

from __future__ import annotations

import pytest

from flintmq.records.batch import read_header
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.log import Log
from flintmq.storage.scrub import ScrubResult, scrub
from flintmq.storage.segment import LOG
from support.log.on_simulated_disk import PLENTY, Bench

BATCHES = 6


@pytest.fixture
def bench() -> Bench:
    """A sealed segment with six batches of one record, and an active one."""
    made = Bench()
    made.fill(BATCHES)
    made.log.roll(0)
    made.fill(1)
    return made


def run(log: Log, position: int = 0, *, limit: int = PLENTY) -> ScrubResult:
    segment = log.segments[0]
    return scrub(segment, position, size=segment.size, expected=0, end_offset=BATCHES, limit=limit)


def counts(found: ScrubResult) -> tuple[int, CorruptRange | None, int, int]:
    return found.position, found.damage, found.batches, found.records


def positions(log: Log) -> list[int]:
    return [position for position, _ in log.segments[0].walk(0)]


def test_sound_batches_are_counted(bench: Bench) -> None:
    assert counts(run(bench.log)) == (bench.log.segments[0].size, None, BATCHES, BATCHES)


def test_a_piece_ends_after_the_batch_that_reaches_its_limit_and_the_next_goes_on_there(bench: Bench) -> None:
    size = bench.log.segments[0].size // BATCHES
    first = run(bench.log, limit=size + 1)
    assert counts(first) == (2 * size, None, 2, 2)
    assert counts(run(bench.log, first.position)) == (BATCHES * size, None, 4, 4)


def test_a_batch_that_fails_its_crc_is_named_and_those_behind_it_are_still_read(bench: Bench) -> None:
    at = positions(bench.log)
    bench.disk.flip(bench.path(0, LOG), at[2] + 70)
    found = run(bench.log)
    assert counts(found) == (at[3], CorruptRange(2, 3), 2, 2)
    assert counts(run(bench.log, found.position)) == (bench.log.segments[0].size, None, 3, 3)


@pytest.mark.parametrize(
    ("byte", "what"), [(7, "base offset"), (8, "length, huge"), (10, "length"), (16, "magic")]
)
def test_where_there_is_no_batch_the_rest_of_the_segment_is_lost(bench: Bench, byte: int, what: str) -> None:
    """The CRC covers none of these."""
    bench.disk.flip(bench.path(0, LOG), positions(bench.log)[3] + byte, mask=0x40)
    found = run(bench.log)
    assert found.damage == CorruptRange(3, BATCHES), what
    assert found.position == bench.log.segments[0].size


def test_a_length_that_ends_within_the_header_is_damage(bench: Bench) -> None:
    at = positions(bench.log)[1]
    file = bench.disk.open(bench.path(0, LOG))
    file.pwrite((10).to_bytes(4, "big"), at + 8)
    assert run(bench.log).damage == CorruptRange(1, BATCHES)


def test_offsets_that_go_back_are_damage(bench: Bench) -> None:
    at = positions(bench.log)[4]
    file = bench.disk.open(bench.path(0, LOG))
    file.pwrite((1).to_bytes(8, "big"), at)
    assert read_header(file.pread(61, at)).base_offset == 1
    # Either of the two may have the wrong one.
    assert run(bench.log).damage == CorruptRange(3, BATCHES)


def test_an_offset_that_is_too_high_is_damage_of_the_batch_that_has_it(bench: Bench) -> None:
    """The next one shows it: here the last of the segment, after which no offset is left."""
    at = positions(bench.log)[4]
    bench.disk.flip(bench.path(0, LOG), at + 7)
    assert run(bench.log).damage == CorruptRange(4, BATCHES)


def test_a_file_that_became_shorter_is_damage_up_to_its_end(bench: Bench) -> None:
    at = positions(bench.log)[4]
    bench.disk.open(bench.path(0, LOG)).truncate(at + 20)
    found = run(bench.log)
    assert (found.damage, found.batches) == (CorruptRange(4, BATCHES), 4)


def test_batches_larger_than_a_chunk_are_read_whole() -> None:
    bench = Bench()
    bench.fill(2, size=1_500_000)
    bench.fill(1)
    bench.log.roll(0)
    segment = bench.log.segments[0]
    found = scrub(segment, 0, size=segment.size, expected=0, end_offset=3, limit=PLENTY)
    assert counts(found) == (segment.size, None, 3, 3)


def test_what_is_appended_while_a_thread_reads_is_none_of_its_business(bench: Bench) -> None:
    active = bench.log.active
    size, end = active.size, bench.log.end_offset
    bench.fill(3)
    found = scrub(active, 0, size=size, expected=active.base_offset, end_offset=end, limit=PLENTY)
    assert counts(found) == (size, None, 1, 1)


def test_a_segment_that_was_taken_away_is_not_read_by_its_name(bench: Bench) -> None:
    """A compacted one may have it by now."""
    (dropped,) = bench.log.advance_start(BATCHES)
    bench.log.remove_files([dropped])
    with pytest.raises(FileNotFoundError):
        scrub(dropped, 0, size=dropped.size, expected=0, end_offset=BATCHES, limit=PLENTY)
