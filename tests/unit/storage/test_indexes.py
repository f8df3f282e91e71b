"""Sparse indexes: floors, files and arrays alike, in Kafka's formats (F1, R2)."""

from __future__ import annotations

import struct

import pytest

from flintmq.storage.indexes import OffsetIndex, TimeIndex, floor_in_offset_file, floor_in_time_file
from flintmq.testing.simulation import SimulatedDisk, SimulatedFile
from support.log.on_simulated_disk import NOW_MS, Bench


def file_of(data: bytes) -> SimulatedFile:
    file = SimulatedDisk(0).open("index", create=True)
    file.pwrite(data, 0)
    return file


@pytest.fixture
def offsets() -> OffsetIndex:
    index = OffsetIndex()
    for relative, position in ((9, 100), (19, 300), (20, 350), (45, 900)):
        index.append(relative, position)
    return index


@pytest.fixture
def times() -> TimeIndex:
    index = TimeIndex()
    for timestamp, relative in ((1000, 9), (2000, 19), (3000, 45)):
        index.append(timestamp, relative)
    return index


@pytest.mark.parametrize(
    ("relative", "position"),
    [(0, 0), (8, 0), (9, 100), (18, 100), (19, 300), (20, 350), (44, 350), (45, 900), (1 << 31, 900)],
)
def test_the_floor_of_an_offset_is_the_same_in_memory_and_in_the_file(
    offsets: OffsetIndex, relative: int, position: int
) -> None:
    assert offsets.floor(relative) == position
    assert floor_in_offset_file(file_of(offsets.encode()), relative) == position


@pytest.mark.parametrize(
    ("timestamp", "relative"),
    [(0, 0), (1000, 0), (1001, 9), (2000, 9), (2001, 19), (3000, 19), (3001, 45), (1 << 60, 45)],
)
def test_the_floor_of_a_time_is_the_last_offset_whose_predecessors_are_all_earlier(
    times: TimeIndex, timestamp: int, relative: int
) -> None:
    assert times.floor(timestamp) == relative
    assert floor_in_time_file(file_of(times.encode()), timestamp) == relative


@pytest.mark.parametrize(
    ("start", "end", "count_max", "found"),
    [
        (0, 1 << 31, 4, [9, 19, 20, 45]),
        (19, 1 << 31, 4, [19, 20, 45]),
        (18, 1 << 31, 4, [9, 19, 20, 45]),
        (0, 45, 4, [9, 19, 20]),
        (0, 1 << 31, 3, [9, 20]),
        (19, 1 << 31, 2, [19, 20]),
        (0, 1 << 31, 1, [9]),
        (0, 1 << 31, 0, []),
        (50, 60, 4, [45]),
        (0, 5, 4, []),
    ],
)
def test_a_sample_begins_where_a_walk_to_the_start_does_and_is_bounded(
    offsets: OffsetIndex, start: int, end: int, count_max: int, found: list[int]
) -> None:
    positions = {9: 100, 19: 300, 20: 350, 45: 900}
    assert offsets.sample(start, end, count_max) == [(offset, positions[offset]) for offset in found]


def test_most_of_a_sample_stays_as_the_index_grows() -> None:
    index = OffsetIndex()
    before: set[tuple[int, int]] = set()
    for at in range(1000):
        index.append(at, at * 10)
        sample = index.sample(3, 1 << 31, 16)
        assert len(sample) <= 16
        if at >= 16:
            assert sample[0] == (3, 30)
            kept = before & set(sample)
            assert len(kept) >= len(before) // 2
            assert len(sample) > 7
        before = set(sample)


def test_an_empty_index_leads_to_the_beginning() -> None:
    assert OffsetIndex().sample(0, 10, 4) == []
    assert OffsetIndex().floor(5) == TimeIndex().floor(5) == 0
    assert floor_in_offset_file(file_of(b""), 5) == floor_in_time_file(file_of(b""), 5) == 0


def test_the_files_hold_big_endian_pairs_as_in_kafka(offsets: OffsetIndex, times: TimeIndex) -> None:
    assert offsets.encode()[:16] == struct.pack(">iiii", 9, 100, 19, 300)
    assert times.encode()[:24] == struct.pack(">qiqi", 1000, 9, 2000, 19)
    assert OffsetIndex.decode(offsets.encode()).encode() == offsets.encode()
    assert TimeIndex.decode(times.encode()).encode() == times.encode()


def test_a_time_index_takes_only_what_is_later_in_both_columns(times: TimeIndex) -> None:
    before = times.encode()
    times.append(3000, 60)
    times.append(2500, 70)
    times.append(4000, 45)
    assert times.encode() == before
    times.append(4000, 46)
    assert times.encode() == before + struct.pack(">qi", 4000, 46)


def test_disorder_and_entries_outside_the_log_file_are_unsound(
    offsets: OffsetIndex, times: TimeIndex
) -> None:
    assert offsets.is_sound(901)
    assert not offsets.is_sound(900)
    assert times.is_sound()
    offsets.append(45, 950)
    assert not offsets.is_sound(10_000)
    assert not TimeIndex.decode(struct.pack(">qiqi", 5, 1, 4, 2)).is_sound()


def test_an_entry_is_made_only_after_the_interval_and_carries_the_last_offset_of_its_batch() -> None:
    bench = Bench(index_interval_bytes=400)
    sizes = [len(data) for data in bench.fill(20, size=100)]
    index = bench.log.active.offset_index
    assert index is not None
    position, since, expected = 0, 0, []
    for offset, size in enumerate(sizes):
        if since > 400:
            expected.append((offset, position))
            since = 0
        since += size
        position += size
    assert list(zip(index.offsets, index.positions, strict=True)) == expected
    assert 3 < len(expected) < 8


def test_sealing_notes_the_largest_time_even_if_no_interval_is_full() -> None:
    bench = Bench(index_interval_bytes=1 << 20)
    bench.fill(3)
    positions, times = bench.log.active.seal()
    assert positions == b""
    assert times == struct.pack(">qi", NOW_MS + 20, 2)
