"""Somebody rolls a table back behind our commits: it goes on from the rows that it then has, and none is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from flintmq.lake.clean import clean
from flintmq.lake.tables.factory import NAMESPACE
from flintmq.lake.tables.iceberg.catalogs import open_catalog
from flintmq.lake.tables.table import Conflict, Format, TableChange, TableError, TopicProgress
from support.lake.data_files import SCHEMA, TOPIC, TOPIC_ID, rows_of
from support.lake.synced_lake import Lake, topic_rows
from support.lake.table_location import TableLocation, next_offset
from support.spark.spark_topics import TIME_MS, Topics

if TYPE_CHECKING:
    from support.broker.broker_process import BrokerProcess


WITHOUT_SPARK = True


def loaded(place: TableLocation) -> Any:
    return place.catalog.load_table((NAMESPACE, TOPIC))


def snapshot_ids(table: Any) -> list[int]:
    """The oldest first."""
    return [one.snapshot_id for one in sorted(table.snapshots(), key=lambda one: one.sequence_number)]


def roll_back(table: Any, snapshot_id: int) -> None:
    table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def test_a_table_rolled_back_goes_on_where_its_rows_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1, 2])
    late = place.fill([3])
    roll_back(loaded(place), snapshot_ids(loaded(place))[1])
    assert next_offset(place.state(), 0) == 30
    assert "has been rolled back" in caplog.text
    with pytest.raises(Conflict):
        place.add(late, [place.write(late, rows_of(range(60, 70)), 60, 70)], at=70)
    # The files are there already, and count again.
    place.fill([4])
    caplog.clear()
    assert next_offset(place.state(), 0) == 70
    assert place.rows().column("offset").to_pylist() == list(range(70))
    assert not caplog.text, "it is said only as long as it is so"


def test_what_was_rolled_back_can_be_cleaned(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1, 1])
    roll_back(loaded(place), snapshot_ids(loaded(place))[0])
    # It may still be rolled forward, or committed by who goes on.
    assert clean(place.table, place.store) == []
    state = place.state()
    place.add(state, [place.write(state, rows_of(range(10, 40)), 10, 40)], at=40)
    (gone,) = clean(place.table, place.store, keep_ms=-3_600_000)
    assert "-10-20-" in gone.path
    assert place.rows().column("offset").to_pylist() == list(range(40))


def test_a_merge_on_a_table_rolled_back_keeps_its_progress(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([2, 1])
    roll_back(loaded(place), snapshot_ids(loaded(place))[0])
    state = place.state()
    merged = place.write(state, rows_of(range(20)), 0, 20)
    after = place.table.commit(
        TableChange(base=state, added=[merged], removed=list(place.table.files(state)))
    )
    assert next_offset(after, 0) == 20
    place.fill([1])
    assert place.rows().column("offset").to_pylist() == list(range(30))


def test_snapshots_of_others_change_nothing_about_it(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1, 1])
    other = loaded(place)
    roll_back(other, snapshot_ids(other)[0])
    other = loaded(place)
    other.append(rows_of(range(900, 903)).cast(other.schema().as_arrow()))
    assert next_offset(place.state(), 0) == 10
    place.fill([1])
    assert place.rows().column("offset").to_pylist() == [*range(20), 900, 901, 902]


def test_rolled_back_and_forward_it_is_as_before(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    before = place.fill([1, 1])
    table = loaded(place)
    first, last = snapshot_ids(table)
    roll_back(table, first)
    loaded(place).manage_snapshots().set_current_snapshot(snapshot_id=last).commit()
    assert place.state().progress == before.progress
    place.fill([1])
    assert place.rows().column("offset").to_pylist() == list(range(30))


def test_of_very_many_partitions_it_is_refused_with_what_to_do(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    state = place.table.create(SCHEMA)
    for at in (10, 20):
        added = place.write(state, rows_of(range(at - 10, at)), at - 10, at)
        progress = {TOPIC: TopicProgress(TOPIC_ID, {0: at, **dict.fromkeys(range(1, 1000), 7)})}
        state = place.table.commit(TableChange(base=state, added=[added], progress=progress))
    table = loaded(place)
    first, last = snapshot_ids(table)
    roll_back(table, first)
    with pytest.raises(TableError, match=f"Set its current snapshot to {last} again"):
        place.table.state()
    loaded(place).manage_snapshots().set_current_snapshot(snapshot_id=last).commit()
    assert place.state().progress == state.progress


def test_behind_all_that_is_ours_it_is_refused(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.table.create(SCHEMA)
    other = loaded(place)
    other.append(rows_of(range(900, 903)).cast(other.schema().as_arrow()))
    assert place.state().progress == {}
    place.fill([1])
    theirs, ours = snapshot_ids(loaded(place))
    roll_back(loaded(place), theirs)
    with pytest.raises(TableError, match=f"Set its current snapshot to {ours} again"):
        place.table.state()


def test_deltas_restore_brings_the_progress_back_too(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.DELTA)
    place.fill([1, 1, 1])
    deltalake.DeltaTable(place.table.location).restore(2)
    assert place.rows().column("offset").to_pylist() == list(range(20))
    assert next_offset(place.state(), 0) == 20
    place.fill([2])
    assert place.rows().column("offset").to_pylist() == list(range(40))


@pytest.mark.usefixtures("spark")
def test_a_sync_fills_up_what_was_rolled_back_and_the_quarantine_once(
    broker: BrokerProcess, topics: Topics, topic: str, lake: Lake
) -> None:
    topics.create(topic)
    options = {"format": "iceberg", "decode": "json", "schema": "id long"}
    for number in range(3):
        records = [(b"k", b'{"id": %d}' % number, TIME_MS, ()), (None, b"poison", TIME_MS, ())]
        topics.write(topic, records)
        lake.sync(topic, **options)
    names = (topic, f"{topic}__quarantine")
    catalog = open_catalog(lake.root, None)
    tables = [catalog.load_table((NAMESPACE, name)) for name in names]
    roll_back(tables[0], snapshot_ids(tables[0])[0])
    topics.write(topic, [(None, b"poison", TIME_MS, ())])
    with pytest.raises(TableError, match="roll it back as far, or move it away"):
        lake.sync(topic, **options)
    roll_back(tables[1], snapshot_ids(tables[1])[0])
    lake.sync(topic, **options)
    expected = topic_rows(broker.address, topic)
    good, poison = (lake.rows(name, "iceberg") for name in names)
    assert [row["offset"] for row in good] == [0, 2, 4]
    assert [row["offset"] for row in poison] == [1, 3, 5, 6]
    assert len(expected) == 7
