"""`lake compact`, `lake latest` and `lake clean` on a real S3 server, each with a format; the rest is long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flintmq.lake.clean import OrphanReason, clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.table import Conflict, Format, TableChange
from support.lake.data_files import rows_of
from support.lake.s3_server import BUCKET, S3Server
from support.lake.table_location import TableLocation, progress
from support.lake.table_pairs import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def one_of(first: Format) -> list[Any]:
    """Parameters: the first by default, the others among the long tests."""
    return [first, *(pytest.param(one, marks=pytest.mark.long) for one in Format if one is not first)]


@pytest.fixture
def where(s3: S3Server, tmp_path: Path, format: Format) -> dict[str, Any]:
    """Of a place in the bucket."""
    catalog = f"sqlite:///{tmp_path}/catalog.db" if format is Format.ICEBERG else None
    root = f"s3://{BUCKET}/operations-{new_id()}"
    return {"root": root, "format": format, "settings": s3.settings, "catalog": catalog}


@pytest.mark.parametrize("format", one_of(Format.DELTA))
def test_small_files_in_a_bucket_become_one(spark: SparkSession, where: dict[str, Any]) -> None:
    place = TableLocation(**where)
    place.fill([5])
    before = place.fill([3], partition=1)
    rows = place.rows().sort_by([("partition", "ascending"), ("offset", "ascending")])
    done = compact(spark, place.table, place.store)
    assert (done.files_before, done.files_after, done.rows) == (8, 2, 80)
    assert sorted((one.partition, one.start_offset, one.end_offset) for one in place.files()) == [
        (0, 0, 50),
        (1, 0, 30),
    ]
    assert place.rows().sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(rows)
    assert place.state().progress == before.progress
    assert len(clean(place.table, place.store, keep_ms=-3_600_000)) == 8
    assert place.paths_in_store() == {one.path for one in place.files()}
    assert place.rows().num_rows == 80


@pytest.mark.parametrize("format", one_of(Format.ICEBERG))
def test_the_latest_of_keys_in_a_bucket(spark: SparkSession, where: dict[str, Any]) -> None:
    pair = Pair(spark, **where)
    pair.add([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key")])
    pair.add([(b"a", b"of another partition")], partition=1)
    assert pair.refresh().rows == 3
    pair.check()
    pair.add([(b"b", None), (b"c", b"1")])
    again = pair.refresh()
    assert (again.offsets, again.files_read, again.rows) == (2, 1, 3)
    pair.check()


@pytest.mark.parametrize("format", one_of(Format.PARQUET))
def test_what_can_never_count_goes_from_the_bucket(where: dict[str, Any]) -> None:
    place = TableLocation(**where)
    state = place.fill([1])
    late = place.write(state, rows_of(range(10, 20)), 10, 20)
    assert clean(place.table, place.store, keep_ms=0) == [], "a sync under way may commit it"
    place.add(state, [place.write(state, rows_of(range(10, 30)), 10, 30)], at=30)
    with pytest.raises(Conflict):
        place.table.commit(TableChange(base=state, added=[late], progress=progress(state, 0, 20)))
    for dry_run in (True, False):
        (orphan,) = clean(place.table, place.store, keep_ms=0, dry_run=dry_run)
        assert (orphan.path, orphan.why, orphan.size) == (late.path, OrphanReason.LATE, late.size)
    assert place.paths_in_store() == {one.path for one in place.files()}
    assert place.rows().column("offset").to_pylist() == list(range(30))
