"""Tables as other engines see them, and as several processes change them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError

from flintmq.lake.tables.iceberg.table import IcebergTable
from flintmq.lake.tables.table import Conflict, Format, TableChange, TableError
from support.lake.data_files import SCHEMA, TOPIC, rows_of
from support.lake.table_location import TableLocation, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_pyiceberg_opens_only_files_with_the_offsets_or_times_asked_for(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([10])
    table = place.catalog.load_table(("flintmq", TOPIC))
    assert len(list(table.scan().plan_files())) == 10
    (found,) = table.scan(row_filter="offset == 37").plan_files()
    assert "-30-40-" in found.file.file_path
    assert len(list(table.scan(row_filter="offset >= 80").plan_files())) == 2
    late = table.scan(row_filter="timestamp >= '2026-11-15T00:01:30+00:00'")
    assert len(list(late.plan_files())) == 1
    assert late.to_arrow().column("offset").to_pylist() == list(range(90, 100))


def test_deltalake_opens_only_files_with_the_offsets_asked_for(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.DELTA)
    place.fill([10])
    table = deltalake.DeltaTable(place.table.location)
    figures = pa.table(table.get_add_actions(flatten=True)).sort_by("min.offset")
    assert figures.column("min.offset").to_pylist() == list(range(0, 100, 10))
    assert figures.column("max.offset").to_pylist() == list(range(9, 100, 10))
    query = deltalake.QueryBuilder().register("t", table)
    plan = pa.table(query.execute('explain analyze select * from t where "offset" = 37').read_all())
    assert "-30-40-" in str(plan.to_pylist())
    assert "-40-50-" not in str(plan.to_pylist())
    found = pa.table(query.execute('select "offset" from t where "offset" = 37').read_all())
    assert found.column("offset").to_pylist() == [37]


def test_duckdb_and_spark_read_the_files_of_a_plain_table(spark: SparkSession, tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    state = place.fill([4])
    # Made by a sync that was killed: it is in the folder and not in the table.
    place.write(state, rows_of(range(40, 50)), 40, 50)
    names = [f"{place.table.location}/{one.path}" for one in place.files()]
    found = duckdb.sql('select count(*), max("offset") from read_parquet(?)', params=[names])
    assert found is not None
    assert found.fetchall() == [(40, 39)]
    frame = spark.read.parquet(*names)
    assert sorted(row.offset for row in frame.where("offset >= 35").collect()) == list(range(35, 40))
    assert frame.agg({"timestamp": "max"}).collect()[0][0].year == 2026


@pytest.mark.parametrize(
    "format",
    [
        pytest.param(Format.PARQUET, marks=pytest.mark.long),
        pytest.param(Format.DELTA, marks=pytest.mark.long),
        Format.ICEBERG,
    ],
)
def test_of_processes_that_commit_at_once_each_is_told_the_truth(tmp_path: Path, format: Format) -> None:
    program = (
        "import sys\n"
        "from flintmq.lake.tables.table import Conflict, Format\n"
        "from support.lake.table_location import TableLocation, next_offset\n"
        "from support.lake.data_files import rows_of\n"
        "place, won, lost = TableLocation(sys.argv[1], Format(sys.argv[2])), 0, 0\n"
        "for _ in range(200):\n"
        "    state = place.state()\n"
        "    at = next_offset(state, 0)\n"
        "    if at >= 200: break\n"
        "    try:\n"
        "        place.add(state, [place.write(state, rows_of(range(at, at + 10)), at, at + 10)], at=at + 10)\n"
        "        won += 1\n"
        "    except Conflict: lost += 1\n"
        "print(won, lost)\n"
    )
    TableLocation(tmp_path, format).table.create(SCHEMA)
    command = [sys.executable, "-c", program, str(tmp_path), str(format)]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    counts = [[int(number) for number in one.communicate(timeout=100)[0].split()] for one in running]
    assert sum(won for won, _ in counts) == 20, counts
    place = TableLocation(tmp_path, format)
    assert place.rows().column("offset").to_pylist() == list(range(200))
    assert len(place.files()) == 20


class _LosingCatalog:
    """Says nothing sensible about commits, whether they are done or not."""

    def __init__(self, catalog: Any, *, is_done: bool) -> None:
        self._catalog = catalog
        self._is_done = is_done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, identifier: Any) -> Any:
        loaded = self._catalog.load_table(identifier)
        loaded.catalog = self
        return loaded

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_done:
            self._catalog.commit_table(*args, **kwargs)
        raise OperationalError("commit", {}, Exception("the line was cut"))


@pytest.mark.parametrize("is_done", [True, False])
def test_a_catalog_that_does_not_answer_is_asked_again(tmp_path: Path, is_done: bool) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    state = place.fill([1])
    catalog: Any = _LosingCatalog(place.catalog, is_done=is_done)
    losing = IcebergTable(place.store, catalog, ("flintmq", TOPIC))
    base = losing.state()
    assert base == state
    added = place.write(state, rows_of(range(10, 20)), 10, 20)
    change = TableChange(base=state, added=[added], progress=progress(state, 0, 20))
    if is_done:
        assert losing.commit(change).progress == progress(state, 0, 20)
    else:
        with pytest.raises(TableError, match="did not say"):
            losing.commit(change)
    expected = 20 if is_done else 10
    assert place.rows().column("offset").to_pylist() == list(range(expected))


def test_somebody_elses_snapshot_is_a_conflict_and_then_is_kept(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])
    state = place.state()
    other = place.catalog.load_table(("flintmq", TOPIC))
    other.append(rows_of(range(900, 903)).cast(other.schema().as_arrow()))
    added = place.write(state, rows_of(range(10, 20)), 10, 20)
    with pytest.raises(Conflict, match="changed by somebody else"):
        place.add(state, [added], at=20)
    place.add(place.state(), [added], at=20)
    assert place.rows().column("offset").to_pylist() == [*range(20), 900, 901, 902]
    assert sorted(one.topic for one in place.files()) == ["", TOPIC, TOPIC]
