"""Rows of two sides compared: whatever differs is told, however the rows are cut into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.lake.audit.comparison import Offsets, UnsortedRows, check_order, compare, differing
from flintmq.lake.audit.planning import OffsetBounds, SourcePartition, plan_sections
from flintmq.lake.audit.report import AuditProblemKind, offset_runs
from flintmq.lake.tables.data_file import DataFile


class Found:
    def __init__(self) -> None:
        self.compared = 0
        self.told: Counter[tuple[AuditProblemKind, int, str | None]] = Counter()

    def equal(self, count: int) -> None:
        self.compared += count

    def differ(self, kind: AuditProblemKind, offsets: Offsets, column: str | None = None) -> None:
        self.told.update((kind, one, column) for one in offsets.tolist())


def batches(rows: list[tuple[int, bytes | None]], cuts: list[int]) -> Iterator[pa.RecordBatch]:
    edges = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        some = rows[start:end]
        offsets = pa.array([offset for offset, _ in some], pa.int64())
        yield pa.record_batch({"offset": offsets, "value": pa.array([one for _, one in some], pa.binary())})


_CUTS = st.lists(st.integers(0, 50), max_size=5)
_VALUES = st.sampled_from([None, b"", b"a", b"bb"])


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(0, 30), st.tuples(_VALUES, _VALUES, st.integers(0, 3), st.integers(0, 2))),
    _CUTS,
    _CUTS,
)
def test_every_difference_is_told_once(
    rows: dict[int, tuple[bytes | None, bytes | None, int, int]], left: list[int], right: list[int]
) -> None:
    """Of each offset: the value at the broker and in the lake, how often it is in the lake, and whether at all."""
    broker = [(offset, one[0]) for offset, one in sorted(rows.items()) if one[3]]
    lake = [(offset, one[1]) for offset, one in sorted(rows.items()) for _ in range(one[2])]
    expected: Counter[tuple[AuditProblemKind, int, str | None]] = Counter()
    compared = 0
    for offset, (there, here, count, is_there) in rows.items():
        if is_there and not count:
            expected[AuditProblemKind.MISSING, offset, None] += 1
        if count and not is_there:
            expected[AuditProblemKind.FOREIGN, offset, None] += 1
        if count > 1:
            expected[AuditProblemKind.DOUBLED, offset, None] += count - 1
        if is_there and count:
            compared += 1
            if there != here:
                expected[AuditProblemKind.CHANGED, offset, "value"] += 1
    found = Found()
    compare(batches(broker, left), batches(lake, right), found)
    assert found.told == expected
    assert found.compared == compared
    alone = Found()
    assert check_order(batches(lake, right), alone) == len(lake)
    assert alone.told == Counter(
        {one: count for one, count in expected.items() if one[0] is AuditProblemKind.DOUBLED}
    )


@pytest.mark.parametrize("cuts", [[], [1], [2]])
def test_rows_without_order_are_noticed(cuts: list[int]) -> None:
    with pytest.raises(UnsortedRows):
        compare(iter(()), batches([(1, b""), (3, b""), (2, b"")], cuts), Found())


@pytest.mark.parametrize(
    ("first", "second", "rows"),
    [
        (pa.array([1.0, float("nan"), 0.0]), pa.array([1.0, float("nan"), -0.0]), [2]),
        (pa.array([[float("nan")], [1.0]]), pa.array([[float("nan")], [2.0]]), [1]),
        (pa.array([b"a", None, b""]), pa.array([b"a", b"", None]), [1, 2]),
        (pa.array([[{"k": "a"}], None, []]), pa.array([[{"k": "b"}], [], []]), [0, 1]),
        (pa.array([2**62, 5], pa.timestamp("us")), pa.array([2**62, 6], pa.timestamp("us")), [1]),
    ],
)
def test_columns_differ_by_their_bits(first: Any, second: Any, rows: list[int]) -> None:
    assert differing(first, second) == rows


def test_a_file_from_before_columns_were_added_is_compared_in_what_it_has() -> None:
    new = pa.record_batch(
        {
            "offset": [1, 2],
            "id": [5, 2**40],
            "place": pa.array([{"x": 1, "y": 2}, None]),
            "tags": pa.array([[{"a": 1, "b": 2}], None]),
            "extra": [1, 2],
        }
    )
    old = pa.record_batch(
        {
            "offset": [1, 2],
            "id": pa.array([5, 7], pa.int32()),
            "place": pa.array([{"x": 1}, None]),
            "tags": pa.array([[{"a": 1}], None]),
        }
    )
    found = Found()
    compare(iter([new]), iter([old.set_column(1, "id", pa.array([5, 2**40]))]), found)
    assert not found.told
    compare(iter([new.slice(0, 1)]), iter([old.slice(0, 1)]), found)
    assert not found.told
    # Who was narrow cannot hold what is there now: it is not the same.
    compare(iter([new.slice(1, 1)]), iter([old.slice(1, 1)]), found)
    assert set(found.told) == {(AuditProblemKind.CHANGED, 2, "id")}


def test_numbers_become_ranges() -> None:
    assert list(offset_runs([1, 2, 3, 7, 9, 10])) == [(1, 4), (7, 8), (9, 11)]
    assert list(offset_runs([])) == []


PLACE = SourcePartition(topic="t", topic_id=bytes(16), partition=0)


def file(start: int, end: int, *, size: int = 100, value: str | None = None) -> DataFile:
    values = (("day", value),) if value else ()
    return DataFile(
        path=f"{start}-{end}-{value}",
        size=size,
        rows=end - start,
        topic="t",
        partition=0,
        start_offset=start,
        end_offset=end,
        partition_values=values,
    )


_FILES = st.lists(
    st.builds(
        lambda start, count, size, value: file(start, start + count, size=size, value=value),
        st.integers(0, 100),
        st.integers(1, 40),
        st.sampled_from([1, 10**6, 10**8, 10**9]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=6,
)


@given(_FILES, st.integers(0, 150), st.integers(0, 150))
def test_sections_are_disjoint_and_cover_all(files: list[DataFile], earliest: int, end: int) -> None:
    span = OffsetBounds(earliest=min(earliest, end), end=end)
    sections, _ = plan_sections(files, PLACE, span)
    counts = np.zeros(300, int)
    for section in sections:
        for one_range in section.ranges:
            assert one_range.start < one_range.end
            counts[one_range.start : one_range.end] += 1
            assert (one_range.start >= span.earliest) == section.is_at_broker
            holders = [
                one for one in files if one.start_offset < one_range.end and one_range.start < one.end_offset
            ]
            assert sorted(one.path for one in one_range.files) == sorted(one.path for one in holders)
        for before, after in pairwise(section.ranges):
            assert before.end == after.start
        for part in (parts := section.cut((section.start + section.end) // 2)):
            assert part.start < part.end
        assert parts[0].start == section.start
        assert parts[-1].end == section.end
    wanted = np.zeros(300, bool)
    wanted[span.earliest : span.end] = True
    for one in files:
        wanted[one.start_offset : min(one.end_offset, end)] = True
    # Holes below what the broker has belong to no file and to nobody.
    assert (counts[wanted] == 1).all()
    assert counts.max(initial=0) <= 1
    assert not counts[end:].any()


def test_small_files_are_looked_at_together() -> None:
    sections, problems = plan_sections(
        [file(at, at + 1) for at in range(100)], PLACE, OffsetBounds(earliest=0, end=100)
    )
    assert [(one.start, one.end, len(one.ranges)) for one in sections] == [(0, 100, 100)]
    assert not problems


def test_files_that_stand_for_the_same_offsets_or_for_too_many_are_told() -> None:
    files = [file(0, 10), file(5, 20), file(20, 30)]
    _, problems = plan_sections(files, PLACE, OffsetBounds(earliest=0, end=25))
    assert [(one.kind, one.start, one.end) for one in problems] == [
        (AuditProblemKind.MISPLACED, 5, 10),
        (AuditProblemKind.MISPLACED, 25, 30),
    ]
    _, fine = plan_sections(
        [file(0, 10, value="a"), file(0, 10, value="b"), file(0, 30, value="c")],
        PLACE,
        OffsetBounds(earliest=0, end=30),
    )
    assert not fine
