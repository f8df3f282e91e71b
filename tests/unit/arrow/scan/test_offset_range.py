from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.arrow.scan.offset_range import TASKS_MAX, OffsetRange, split
from flintmq.records.uuids import ZERO_UUID

ranges = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 300)), max_size=6).map(
    lambda found: [
        OffsetRange("t", ZERO_UUID, index, start, start + size) for index, (start, size) in enumerate(found)
    ]
)
limits = st.none() | st.integers(1, 400)


def covered(pieces: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(one.partition, offset) for one in pieces for offset in range(one.start, one.end)]


@given(ranges, limits, limits)
def test_splitting_loses_nothing_repeats_nothing_and_keeps_its_limits(
    given_ranges: list[OffsetRange], records_max: int | None, count_min: int | None
) -> None:
    pieces = split(given_ranges, records_max=records_max, count_min=count_min)
    assert covered(pieces) == covered(given_ranges)
    assert all(one.size > 0 for one in pieces)
    if records_max is not None:
        assert all(one.size <= records_max for one in pieces)
    if count_min is not None:
        assert len(pieces) >= min(count_min, len(covered(given_ranges)))


def test_large_ranges_get_the_pieces() -> None:
    large, small = OffsetRange("t", ZERO_UUID, 0, 0, 900), OffsetRange("t", ZERO_UUID, 1, 0, 100)
    pieces = split([large, small], count_min=10)
    assert [one.partition for one in pieces] == [0] * 9 + [1]
    assert {one.size for one in pieces} == {100}


def test_there_is_an_end_to_the_number_of_tasks() -> None:
    huge = OffsetRange("t", ZERO_UUID, 0, 0, 1 << 40)
    assert len(split([huge], records_max=1)) <= TASKS_MAX
    assert len(split([huge], count_min=1 << 40)) <= TASKS_MAX
