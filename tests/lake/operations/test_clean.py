"""`lake clean`: what can still count is never deleted, and what cannot is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flintmq.lake.clean import OrphanReason, clean
from flintmq.lake.compact.compact import commit_merges, compact
from flintmq.lake.compact.merge import MergeTask, merge_files
from flintmq.lake.compact.planning import PlannedMerge, plan_merges
from flintmq.lake.limits import TableLimits
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.tables.data_file import DataFile, FileName, data_path
from flintmq.lake.tables.table import Conflict, Format, TableChange, TableError
from support.lake.data_files import SCHEMA, TOPIC, rows_of, write_file
from support.lake.table_location import TableLocation, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=list(Format))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TableLocation:
    return TableLocation(tmp_path, Format(request.param))


def merged(place: TableLocation, *, files_min: int = 2) -> list[tuple[PlannedMerge, DataFile]]:
    """Merged files that are not committed."""
    state = place.state()
    merges = plan_merges(place.files(), target_bytes=1 << 30, files_min=files_min, settings="")
    layout = FileLayout(store=place.store, schema=state.schema)
    return [(one, merge_files(MergeTask(merge=one, layout=layout))) for one in merges]


def test_what_is_in_the_table_stays(place: TableLocation) -> None:
    place.fill([3, 2])
    before = place.paths_in_store()
    assert clean(place.table, place.store, keep_ms=0) == []
    assert place.paths_in_store() == before
    assert place.rows().num_rows == 50


def test_a_file_that_a_sync_under_way_may_commit_stays_until_it_cannot(place: TableLocation) -> None:
    state = place.fill([1])
    waiting = place.write(state, rows_of(range(10, 20)), 10, 20)
    assert clean(place.table, place.store, keep_ms=0) == []
    # Another sync is faster, with a larger piece.
    larger = place.write(state, rows_of(range(10, 30)), 10, 30)
    place.add(state, [larger], at=30)
    with pytest.raises(Conflict):
        place.table.commit(TableChange(base=state, added=[waiting], progress=progress(state, 0, 20)))
    (orphan,) = clean(place.table, place.store, keep_ms=0)
    assert (orphan.path, orphan.why, orphan.size) == (waiting.path, OrphanReason.LATE, waiting.size)
    assert waiting.path not in place.paths_in_store()
    assert place.rows().column("offset").to_pylist() == list(range(30))


def test_nothing_is_deleted_when_asked_what_would_be(place: TableLocation) -> None:
    state = place.fill([1])
    late = write_file(place.store, SCHEMA, rows_of(range(5)), start=0, end=5)
    assert [one.path for one in clean(place.table, place.store, keep_ms=0, dry_run=True)] == [late.path]
    assert late.path in place.paths_in_store()
    assert place.state() == state


def test_files_of_another_topic_go_and_those_of_others_stay(place: TableLocation) -> None:
    place.fill([1])
    name = FileName(topic_id="ee" * 16, partition=0, start_offset=90, end_offset=95, digest="ab" * 8)
    assert place.store.put_new(data_path(name), b"of a topic that was deleted")
    assert place.store.put_new("data/somebody.parquet", b"else's")
    assert [(one.path, one.why) for one in clean(place.table, place.store)] == [
        (data_path(name), OrphanReason.OTHER_TOPIC)
    ]
    assert place.store.get("data/somebody.parquet") == b"else's"


def test_a_merged_file_stays_while_its_inputs_are_there(place: TableLocation) -> None:
    place.fill([2])
    first = merged(place)
    assert clean(place.table, place.store, keep_ms=0) == []
    # A larger merge is faster than the first.
    place.fill([1])
    larger = merged(place)
    assert commit_merges(place.table, larger)
    assert commit_merges(place.table, first) == []
    orphans = {one.path: one.why for one in clean(place.table, place.store, keep_ms=0)}
    assert orphans[first[0][1].path] is OrphanReason.UNMERGED
    assert place.rows().num_rows == 30


def test_replaced_files_stay_for_those_who_read_older_versions(
    spark: SparkSession, place: TableLocation
) -> None:
    place.fill([4])
    inputs = {one.path for one in place.files()}
    compact(spark, place.table, place.store)
    assert clean(place.table, place.store) == []
    assert inputs < place.paths_in_store()
    # As if an hour had passed, and nothing older than a moment were wanted.
    gone = clean(place.table, place.store, keep_ms=-3_600_000)
    assert {one.path for one in gone} == inputs
    assert inputs.isdisjoint(place.paths_in_store())
    assert place.rows().num_rows == 40
    place.fill([1])
    assert place.rows().num_rows == 50


def test_a_sync_of_many_commits_does_not_keep_all_snapshots(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG, limits=TableLimits(snapshots_kept=5))
    place.fill([1] * 20)
    snapshots = place.catalog.load_table(("flintmq", TOPIC)).snapshots()
    assert 5 <= len(snapshots) <= 6
    lists = [entry for entry in place.store.list("metadata") if "/snap-" in entry.path]
    assert len(lists) == len(snapshots)
    assert place.rows().column("offset").to_pylist() == list(range(200))
    assert len(place.files()) == 20


def test_lists_of_commits_that_were_not_made_go_after_a_day(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1, 1])
    assert place.store.put_new("metadata/killed-m0.avro", b"of a commit that was killed")
    assert clean(place.table, place.store, keep_ms=0) == []
    for name in (Path(place.table.location) / "metadata").iterdir():
        os.utime(name, (0, 0))
    assert [(one.path, one.why) for one in clean(place.table, place.store)] == [
        ("metadata/killed-m0.avro", OrphanReason.UNLISTED)
    ]
    assert place.rows().num_rows == 20


def test_drafts_of_the_dead_are_deleted(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([1])
    drafts = Path(place.table.location) / "_flintmq" / "drafts"
    (drafts / "dead").write_bytes(b"half")
    with place.store.draft():
        assert [one.why for one in clean(place.table, place.store)] == [OrphanReason.DRAFT]
        assert len(list(drafts.iterdir())) == 1


def test_of_an_empty_table_nothing_can_be_said(place: TableLocation) -> None:
    place.table.create(SCHEMA)
    write_file(place.store, SCHEMA, rows_of(range(5)), start=0, end=5)
    assert clean(place.table, place.store, keep_ms=0) == []


def test_without_a_table_nothing_is_deleted(place: TableLocation) -> None:
    with pytest.raises(TableError, match=r"There is no .* table"):
        clean(place.table, place.store)
