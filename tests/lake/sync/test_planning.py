"""How a topic is cut into offset ranges, and rows are sorted into partitions: nothing lost, nothing twice."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.client.admin.segments import IndexEntry, PartitionFiles, SegmentFile
from flintmq.errors import ConfigurationError
from flintmq.lake.syncing.planner import cut_at_segments
from flintmq.lake.tables.data_file import FileName, data_path, digest_of
from flintmq.lake.tables.partitioning import check_partitioning, parse_partitioning, split_by_partition
from flintmq.lake.tables.table import PartitionField, TableError, Transform

PIECE_BYTES = 1000


def files_of(*segments: tuple[int, int, int]) -> PartitionFiles:
    found = tuple(SegmentFile("", start, end, size, 0) for start, end, size in segments)
    return PartitionFiles(b"", "", found, ())


def cut(start: int, end: int, *segments: tuple[int, int, int], bytes_per_offset: float = 1.0) -> list[int]:
    """The edges."""
    pieces = cut_at_segments(
        OffsetRange("t", b"", 0, start, end),
        files_of(*segments),
        piece_bytes=PIECE_BYTES,
        bytes_per_offset=bytes_per_offset,
    )
    assert all(one.end == other.start for one, other in pairwise(pieces))
    return [one.start for one in pieces] + [pieces[-1].end]


def test_the_first_pieces_of_an_active_segment_stay_as_it_grows() -> None:
    """So that the next plan after a kill finds their files."""

    def pieces(end: int) -> list[tuple[int, int]]:
        index = tuple(IndexEntry(offset, offset * 10) for offset in range(20, end, 20))
        active = SegmentFile("", 0, end, end * 10, 0, is_active=True, index=index)
        cut = cut_at_segments(
            OffsetRange("t", bytes(16), 0, 0, end),
            PartitionFiles(bytes(16), "", (active,), ()),
            piece_bytes=500,
            bytes_per_offset=7.0,
        )
        return [(one.start, one.end) for one in cut]

    assert pieces(100) == [(0, 40), (40, 80), (80, 100)]
    assert pieces(150) == [(0, 40), (40, 80), (80, 120), (120, 150)]


def test_pieces_end_where_segments_end() -> None:
    segments = [(0, 100, 400), (100, 200, 400), (200, 300, 400), (300, 400, 400)]
    # What is in no segment yet goes with the last, if it is little.
    assert cut(0, 450, *segments) == [0, 200, 450]
    assert cut(0, 450, *segments, bytes_per_offset=10) == [0, 200, 400, 450]


def test_a_segment_that_is_larger_than_a_piece_is_cut_by_itself() -> None:
    assert cut(0, 200, (0, 100, 100), (100, 200, 2000)) == [0, 100, 150, 200]


def test_a_plan_that_begins_later_has_the_same_edges() -> None:
    segments = [(0, 100, 900), (100, 200, 900), (200, 300, 900)]
    assert cut(0, 300, *segments) == [0, 100, 200, 300]
    assert cut(50, 300, *segments) == [50, 100, 200, 300]


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, int]], float]:
    edges = sorted(draw(st.sets(st.integers(0, 500), min_size=2, max_size=8)))
    segments = [
        (start, end, draw(st.integers(1, 5000))) for start, end in pairwise(edges) if draw(st.booleans())
    ]
    start = draw(st.integers(0, 499))
    return start, draw(st.integers(start + 1, 600)), segments, draw(st.floats(0, 100))


@given(cases())
def test_pieces_are_all_of_the_range_and_none_is_empty(
    case: tuple[int, int, list[tuple[int, int, int]], float],
) -> None:
    start, end, segments, density = case
    edges = cut(start, end, *segments, bytes_per_offset=density)
    assert (edges[0], edges[-1]) == (start, end)
    assert edges == sorted(set(edges))


DAY = Transform.DAY
BOTH = (PartitionField("at", DAY), PartitionField("name", Transform.IDENTITY))


@given(
    st.lists(
        st.tuples(
            st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
            st.none() | st.sampled_from(["a", "b", ""]),
        )
    )
)
def test_every_row_is_in_the_partition_that_its_values_say(rows: list[tuple[Any, Any]]) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "at": pa.array(
                [None if at is None else at.replace(tzinfo=UTC) for at, _ in rows], pa.timestamp("us", "UTC")
            ),
            "name": pa.array([name for _, name in rows], pa.string()),
        }
    )
    seen = []
    for values, part in split_by_partition(batch, BOTH):
        numbers = part.column("row").to_pylist()
        assert numbers == sorted(numbers)
        seen += numbers
        for number in numbers:
            at, name = rows[number]
            assert values == (("at_day", None if at is None else f"{at:%Y-%m-%d}"), ("name", name))
    assert sorted(seen) == list(range(len(rows)))


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (Transform.YEAR, "1969"),
        (Transform.MONTH, "1969-12"),
        (Transform.DAY, "1969-12-31"),
        (Transform.HOUR, "1969-12-31-23"),
    ],
)
def test_times_before_1970_are_cut_towards_the_past(transform: Transform, text: str) -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict({"at": pa.array([moment], pa.timestamp("us", "UTC"))})
    ((values, _),) = split_by_partition(batch, (PartitionField("at", transform),))
    assert values == ((f"at_{transform}", text),)


def test_dates_and_numbers_and_truth_are_texts_in_a_path() -> None:
    batch = pa.RecordBatch.from_pydict({"d": [date(2026, 1, 2)], "n": [-5], "b": [True]})
    ((values, _),) = split_by_partition(batch, parse_partitioning(["d:month", "n", "b"]))
    assert values == (("d_month", "2026-01"), ("n", "-5"), ("b", "true"))
    name = FileName(topic_id="ab" * 16, partition=1, start_offset=2, end_offset=3, digest=digest_of("x"))
    assert data_path(name, (("n", "a/b=ü"), ("b", None))) == (
        f"data/n=a%2Fb%3D%C3%BC/b=__HIVE_DEFAULT_PARTITION__/{name}"
    )


def test_a_value_that_no_folder_can_be_named_after_is_said() -> None:
    batch = pa.RecordBatch.from_pydict({"name": ["x" * 300]})
    with pytest.raises(TableError, match="too long"):
        list(split_by_partition(batch, parse_partitioning(["name"])))


def test_an_hour_of_a_date_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a time"):
        check_partitioning(parse_partitioning(["d:hour"]), pa.schema([("d", pa.date32())]))
