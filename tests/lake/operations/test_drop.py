"""`lake drop`: all of a table is deleted, nothing else is, and whoever is killed on the way is made up for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.cli.main import main
from flintmq.client.admin.groups import list_groups
from flintmq.lake.compact.compact import compact
from flintmq.lake.drop import drop, fence, is_there
from flintmq.lake.latest.latest import latest
from flintmq.lake.tables.factory import OpenedTable
from flintmq.lake.tables.table import Conflict, Format, TableChange, TableDropped, TableError
from support.lake.data_files import TOPIC
from support.lake.deaths import Killed, dying
from support.lake.s3_server import BUCKET, S3Server
from support.lake.sync_program import COMMITS
from support.lake.synced_lake import FORMATS, Lake, without_spark
from support.lake.table_location import TableLocation
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True


def opened(place: TableLocation) -> OpenedTable:
    return OpenedTable(place.table, place.store)


def again(place: TableLocation) -> TableLocation:
    """As another process sees it."""
    return TableLocation(place.root, place.format, settings=place.settings, catalog=place.catalog_name)


def files_below(root: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(directory, name), root)
        for directory, _, names in os.walk(root)
        for name in names
        if not name.startswith("catalog.db")
    )


@pytest.mark.parametrize("format", list(Format))
def test_all_of_a_table_is_deleted_and_its_neighbour_is_not(tmp_path: Path, format: Format) -> None:
    place, neighbour = TableLocation(tmp_path, format), TableLocation(tmp_path, format, TOPIC + "2")
    place.fill([3, 2])
    neighbour.fill([1])
    before = files_below(tmp_path / f"{TOPIC}2")
    done = drop(opened(place))
    assert done.files > 5
    assert not (tmp_path / TOPIC).exists()
    assert again(place).table.state() is None
    assert files_below(tmp_path / f"{TOPIC}2") == before
    assert len(neighbour.rows()) == 10
    with pytest.raises(TableError, match="There is no table"):
        drop(opened(again(place)))
    # Another one may take the place.
    anew = again(place)
    anew.fill([1])
    assert len(anew.rows()) == 10


@pytest.mark.parametrize("format", list(Format))
def test_data_files_may_be_kept(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([2])
    data = place.paths_in_store()
    drop(opened(place), keep_files=True)
    assert again(place).table.state() is None
    assert again(place).paths_in_store() == data
    anew = again(place)
    anew.fill([2])
    assert len(anew.rows()) == 20


STEPS = {
    "fenced": ("flintmq.lake.drop:_commit_fence", False, 1),
    "before the files": ("flintmq.lake.store.local:LocalFileStore.delete", False, 1),
    "after the files": ("flintmq.lake.store.local:LocalFileStore.delete", True, 1),
    "after the fence": ("flintmq.lake.store.local:LocalFileStore.delete", True, 2),
    "before the marker goes": ("flintmq.lake.store.local:LocalFileStore.delete", False, 3),
    "after the marker": ("flintmq.lake.store.local:LocalFileStore.delete", True, 3),
}


@pytest.mark.parametrize("format", list(Format))
def test_a_drop_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: nobody meets half a table."""
    more = {name: (path, is_after, 1) for name, (path, is_after) in COMMITS[format].items()}
    for name, step in {**STEPS, **more, "half of the files": None}.items():
        place = TableLocation(tmp_path / name.replace(" ", "-"), format)
        place.fill([3, 2])
        with monkeypatch.context() as patched:
            if step is None:
                _die_at_unlink(patched, 4)
            else:
                dying(step, patched)
            with pytest.raises(Killed):
                drop(opened(again(place)))
        found = again(place)
        try:
            state = found.table.state()
        except TableError:
            pass  # nobody commits to it
        else:
            # It is all there, or not at all.
            assert state is None or len(found.rows()) == 50, name
        if is_there(opened(again(place))):
            drop(opened(again(place)))
        assert files_below(Path(place.table.location)) == [], name
        assert again(place).table.state() is None
        assert not is_there(opened(again(place)))


def _die_at_unlink(patched: pytest.MonkeyPatch, count: int) -> None:
    unlink, left = os.unlink, [count]

    def die(path: Any, *args: Any, **options: Any) -> None:
        unlink(path, *args, **options)
        if str(path).endswith(".parquet"):
            left[0] -= 1
            if not left[0]:
                raise Killed

    patched.setattr("os.unlink", die)


@pytest.mark.parametrize("format", list(Format))
def test_nobody_commits_to_a_table_that_is_being_dropped(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([2])
    other = again(place)
    planned = other.state()
    fence(opened(place))
    with pytest.raises((Conflict, TableDropped)):
        other.table.commit(TableChange(base=planned, properties=planned.properties))
    with pytest.raises(TableDropped, match="flintmq lake drop"):
        compact(without_spark(), again(place).table, place.store)
    with pytest.raises(TableDropped):
        again(place).table.state()
    # Two at once.
    drop(opened(again(place)))
    with pytest.raises(TableError, match="There is no table"):
        drop(opened(again(place)))


def test_a_directory_that_is_no_table_of_the_format_is_left_alone(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([2])
    for format in (Format.DELTA, Format.ICEBERG):
        with pytest.raises(TableError, match="There is no table"):
            drop(opened(TableLocation(tmp_path, format)))
    assert len(place.rows()) == 20


@pytest.mark.parametrize("format", [Format.PARQUET, Format.DELTA])
def test_a_table_in_a_bucket_is_deleted(s3: S3Server, format: Format) -> None:
    place = TableLocation(f"s3://{BUCKET}/drop-{format}", format, settings=s3.settings)
    place.fill([2])
    drop(opened(place))
    assert list(place.store.list("")) == []
    assert again(place).table.state() is None


@pytest.mark.parametrize("format", FORMATS)
def test_the_command_drops_all_that_belongs_to_the_table(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, [(b"k", b'{"id": 1}', TIME_MS, ()), (b"k", b"{", TIME_MS, ())])
    lake.sync(topic, format=format, decode="json", schema="id long")
    source, target = (TableLocation(lake.root, Format(format), name) for name in (topic, f"{topic}__latest"))
    latest(lake.spark, source.table, source.store, target.table, target.store)

    def run(*more: str) -> Any:
        arguments = ["lake", "drop", topic, "--to", lake.root, "--format", format, "-b", lake.address, *more]
        return CliRunner().invoke(main, arguments)

    done = run("--json", "--yes")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    names = [one["table"].rpartition("/")[2] for one in found["tables"]]
    assert names == [f"{topic}__quarantine", f"{topic}__latest", topic]
    assert found["groups"] == [f"lake-{topic}"]
    assert f"lake-{topic}" not in [one.id for one in list_groups(topics.client)]
    assert files_below(Path(lake.root)) == []
    done = run("--yes")
    assert done.exit_code == 1
    assert f"there is no {format} table of {topic}" in done.stderr
    lake.sync(topic, format=format, decode="json", schema="id long")
    assert len(lake.rows(topic, format)) == 1
    assert len(lake.rows(f"{topic}__quarantine", format)) == 1


def test_a_group_that_shows_another_table_is_kept(lake: Lake, topics: Topics, topic: str) -> None:
    """Without it retention would delete records that the other table does not have."""
    topics.create(topic)
    topics.write(topic, [(b"k", b"v", TIME_MS, ())])
    other = Lake(lake.spark, lake.address, f"{lake.root}-2")
    lake.sync(topic)
    other.sync(topic)

    def run(root: str) -> Any:
        return CliRunner().invoke(main, ["lake", "drop", topic, "--to", root, "-b", lake.address, "--yes"])

    done = run(lake.root)
    assert done.exit_code == 0, done.output
    assert (
        f"the group lake-{topic} is kept: it shows the progress of the table {other.root}/{topic}"
        in done.stderr
    )
    assert f"lake-{topic}" in [one.id for one in list_groups(topics.client)]
    done = run(other.root)
    assert done.exit_code == 0, done.output
    assert f"lake-{topic}" not in [one.id for one in list_groups(topics.client)]
