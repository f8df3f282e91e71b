"""What footers say, as tables keep it: a bound is there only if it holds."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.delta import actions
from flintmq.lake.tables.properties import from_texts, to_texts
from flintmq.lake.tables.statistics import ColumnStatistics, statistics_of
from flintmq.lake.tables.table import PartitionField, TableError, TopicProgress, Transform

TIME = datetime(2026, 11, 15, 8, 30, 0, 123456, UTC)


def footer_of(table: pa.Table, **options: object) -> bytes:
    found: list[pq.FileMetaData] = []
    pq.write_table(table, io.BytesIO(), metadata_collector=found, row_group_size=2, **options)
    written = io.BytesIO()
    found[0].write_metadata_file(written)
    return written.getvalue()


def figures(table: pa.Table, **options: object) -> dict[str, ColumnStatistics]:
    return {one.path: one for one in statistics_of(footer_of(table, **options)).columns}


def test_bounds_and_nulls_are_of_all_row_groups() -> None:
    found = figures(pa.table({"a": pa.array([3, None, 9, 1, 5], pa.int64())}))["a"]
    assert (found.minimum, found.maximum, found.nulls, found.values, found.is_bounded) == (1, 9, 1, 5, True)


def test_a_row_group_of_nulls_bounds_nothing_and_spoils_nothing() -> None:
    found = figures(pa.table({"a": pa.array([None, None, 9, 1], pa.int64())}))["a"]
    assert (found.minimum, found.maximum, found.nulls, found.is_bounded) == (1, 9, 2, True)


def test_without_statistics_there_are_no_bounds() -> None:
    found = figures(pa.table({"a": pa.array([1, 2, 3])}), write_statistics=False)["a"]
    assert (found.nulls, found.is_bounded) == (None, False)


def test_what_is_in_a_list_is_told_apart() -> None:
    found = figures(pa.table({"a": pa.array([[1, 2], [3]])}))
    assert found["a.list.element"].is_repeated


def test_where_row_groups_begin() -> None:
    found = statistics_of(footer_of(pa.table({"a": pa.array([1, 2, 3, 4, 5])})))
    assert found.rows == 5
    assert len(found.split_offsets) == 3
    assert found.split_offsets == tuple(sorted(found.split_offsets))
    assert found.split_offsets[0] == 4, "behind Parquet's first four bytes"


def test_deltas_figures_hold_for_every_row() -> None:
    table = pa.table(
        {
            "offset": pa.array([7, 8], pa.int64()),
            "at": pa.array([TIME, TIME], pa.timestamp("us", "UTC")),
            "day": pa.array([date(2026, 11, 15)] * 2),
            "text": pa.array(["a", "b"]),
            "long": pa.array(["x" * 100, "y"]),
            "nan": pa.array([1.0, float("nan")]),
            "inner": pa.array([{"x": 1}, {"x": None}]),
            "city": pa.array(["Oslo"] * 2),
        }
    )
    file = DataFile(
        path="data/city=Oslo/a b.parquet",
        size=1,
        rows=2,
        topic="t",
        partition=0,
        start_offset=0,
        end_offset=9,
        partition_values=(("city", "Oslo"),),
        footer=footer_of(table),
    )
    field = PartitionField("city", Transform.IDENTITY)
    added = actions.add(file, [field], 5, is_change=True)["add"]
    assert added["path"] == "data/city=Oslo/a%20b.parquet"
    said = json.loads(added["stats"])
    assert said["numRecords"] == 2
    assert said["minValues"]["offset"] == 7
    assert said["minValues"]["at"] == "2026-11-15T08:30:00.123Z"
    assert said["maxValues"]["at"] == "2026-11-15T08:30:00.124Z"
    assert said["maxValues"]["day"] == "2026-11-15"
    assert said["maxValues"]["text"] == "b"
    assert said["minValues"]["inner"] == {"x": 1}
    assert said["nullCount"]["inner"] == {"x": 1}
    assert {"long", "city", "nan"}.isdisjoint(said["minValues"])


def test_delta_cannot_keep_an_empty_text_apart_from_null() -> None:
    file = DataFile(
        path="data/city=/a.parquet",
        size=1,
        rows=1,
        topic="t",
        partition=0,
        start_offset=0,
        end_offset=1,
        partition_values=(("city", ""),),
    )
    with pytest.raises(TableError, match="empty text"):
        actions.add(file, (), 5, is_change=True)


def test_progress_and_properties_come_back_and_what_is_not_ours_does_not() -> None:
    progress = {"a.b-c": TopicProgress("ff00", {0: 5, 11: 2**62})}
    texts = to_texts(progress, {"flintmq.shape": "raw"})
    assert from_texts({**texts, "delta.appendOnly": "true"}) == (progress, {"flintmq.shape": "raw"})
    with pytest.raises(ValueError, match="flintmq"):
        to_texts({}, {"owner": "me"})
    with pytest.raises(TableError, match="makes no sense"):
        from_texts({"flintmq.progress.t": "{"})
