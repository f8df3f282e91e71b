"""Damaged ranges of offsets: merged for people to read, and without what was repaired."""

from __future__ import annotations

import pytest

from flintmq.storage.corrupt_ranges import CorruptRange, merge_ranges, subtract_range


@pytest.mark.parametrize(
    ("ranges", "merged"),
    [
        ([], []),
        ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
        ([(1, 3), (3, 5)], [(1, 5)]),
        ([(1, 9), (2, 4), (8, 12)], [(1, 12)]),
        ([(2, 4), (2, 4)], [(2, 4)]),
    ],
)
def test_ranges_that_touch_or_overlap_become_one(
    ranges: list[tuple[int, int]], merged: list[tuple[int, int]]
) -> None:
    assert merge_ranges(ranges) == merged


@pytest.mark.parametrize(
    ("bad", "left"),
    [
        ((1, 3), [(1, 3)]),
        ((1, 5), [(1, 4)]),
        ((4, 8), []),
        ((5, 7), []),
        ((6, 9), [(8, 9)]),
        ((8, 9), [(8, 9)]),
        ((1, 9), [(1, 4), (8, 9)]),
    ],
)
def test_what_is_repaired_is_taken_out(bad: tuple[int, int], left: list[tuple[int, int]]) -> None:
    assert subtract_range([CorruptRange(*bad)], 4, 8) == left
