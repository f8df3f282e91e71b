"""Damaged ranges of offsets, merged for people to read."""

from __future__ import annotations

import pytest

from flintmq.storage.corrupt_ranges import merge_ranges


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
