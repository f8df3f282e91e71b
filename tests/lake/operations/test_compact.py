"""`lake compact`: fewer files, the same rows, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flintmq.lake.compact.compact import compact
from flintmq.lake.compact.derived_file import inputs_of
from flintmq.lake.store.store import open_store
from flintmq.lake.tables.data_file import FileName
from flintmq.lake.tables.factory import open_table
from flintmq.lake.tables.table import (
    Format,
    PartitionField,
    Table,
    TableChange,
    TableError,
    TableState,
    Transform,
)
from support.lake.data_files import SCHEMA, TOPIC, rows_of, write_file
from support.lake.table_location import TableLocation, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_SPARK = True


@pytest.fixture(params=list(Format))
def format(request: pytest.FixtureRequest) -> Format:
    return Format(request.param)


def test_small_files_become_one_for_each_partition(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([5, 3])
    before = place.fill([4], partition=1)
    rows = place.rows()
    inputs = [one.path for one in place.files()]
    done = compact(spark, place.table, place.store)
    assert (done.files_before, done.files_after, done.rows, done.commits) == (12, 2, 120, 1)
    found = sorted(place.files(), key=lambda one: one.partition)
    assert [(one.partition, one.start_offset, one.end_offset, one.rows) for one in found] == [
        (0, 0, 80, 80),
        (1, 0, 40, 40),
    ]
    names = [FileName.of(one.path) for one in found]
    assert all(name is not None and name.is_merged for name in names)
    assert sorted(path for one in found for path in inputs_of(place.store, one.path)) == sorted(inputs)
    assert (
        place.rows()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
        .equals(rows.sort_by([("partition", "ascending"), ("offset", "ascending")]))
    )
    after = place.table.state()
    assert after is not None
    assert after.progress == before.progress
    with place.store.open(found[0].path) as file:
        assert pq.read_table(file, columns=["offset"]).column(0).to_pylist() == list(range(80))
    assert compact(spark, place.table, place.store).files_before == 0, "there is nothing left to merge"


def test_files_are_merged_up_to_the_target(spark: SparkSession, tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([10])
    size = place.files()[0].size
    compact(spark, place.table, place.store, target_bytes=int(size * 3.5))
    assert sorted(one.rows for one in place.files()) == [10, 30, 30, 30]


def test_old_columns_become_the_tables(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    state = place.fill([1])
    wanted = SCHEMA.append(pa.field("extra", pa.string()))
    target = place.table.evolved(state, wanted)
    rows = rows_of(range(10, 20)).append_column("extra", pa.array(["x"] * 10))
    added = write_file(place.store, target, rows, start=10, end=20)
    place.table.commit(TableChange(base=state, added=[added], schema=wanted, progress=progress(state, 0, 20)))
    expected = place.rows()
    assert compact(spark, place.table, place.store).files_after == 1
    assert place.rows().equals(expected)
    assert expected.column("extra").to_pylist() == [None] * 10 + ["x"] * 10


def test_partitions_of_the_table_stay_apart(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    field = PartitionField("city", Transform.IDENTITY)
    state = place.table.create(SCHEMA, partitioning=[field])
    files = []
    for start in range(0, 60, 20):
        for city, first in (("Oslo", start), (None, start + 10)):
            # Both stand for the same offsets, and have rows of different ones.
            rows = rows_of(range(first, first + 10), city=city)
            files.append(
                write_file(
                    place.store, state.schema, rows, start=start, end=start + 20, values=(("city", city),)
                )
            )
    place.table.commit(TableChange(base=state, added=files, progress=progress(state, 0, 60)))
    expected = place.rows()
    assert compact(spark, place.table, place.store).files_after == 2
    assert {one.partition_values for one in place.files()} == {(("city", "Oslo"),), (("city", None),)}
    assert place.rows().equals(expected)


def test_a_sync_meanwhile_loses_nothing(
    spark: SparkSession, tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = TableLocation(tmp_path, format), TableLocation(tmp_path, format)
    place.fill([4])
    commit, calls = place.table.commit, []

    def slow_commit(change: TableChange) -> TableState:
        calls.append(change)
        if len(calls) == 1:
            other.fill([2])
        return commit(change)

    monkeypatch.setattr(place.table, "commit", slow_commit)
    done = compact(spark, place.table, place.store)
    assert (len(calls), done.files_before, done.files_after) == (2, 4, 1)
    assert place.rows().column("offset").to_pylist() == list(range(60))
    state = place.table.state()
    assert state is not None
    assert state.progress[TOPIC].next_offsets == {0: 60}


def test_of_two_compactions_at_once_one_counts(
    spark: SparkSession, tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = TableLocation(tmp_path, format), TableLocation(tmp_path, format)
    place.fill([4])
    commit: list[TableChange] = []
    real = place.table.commit

    def late_commit(change: TableChange) -> TableState:
        if not commit:
            commit.append(change)
            compact(spark, other.table, other.store)
        return real(change)

    monkeypatch.setattr(place.table, "commit", late_commit)
    assert compact(spark, place.table, place.store).files_after == 0
    assert len(place.files()) == 1
    assert place.rows().column("offset").to_pylist() == list(range(40))


def test_a_file_whose_rows_are_not_those_counted_is_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([2])
    victim = tmp_path / TOPIC / place.files()[0].path
    pq.write_table(pq.read_table(victim).slice(0, 9), victim)
    with pytest.raises(TableError, match="not have the rows"):
        compact(spark, place.table, place.store)
    assert len(place.files()) == 2


def test_without_a_table_there_is_nothing_to_merge(spark: SparkSession, tmp_path: Path) -> None:
    table: Table = open_table(str(tmp_path), "nowhere", Format.PARQUET)
    with pytest.raises(TableError, match=r"There is no .* table"):
        compact(spark, table, open_store(table.location))
