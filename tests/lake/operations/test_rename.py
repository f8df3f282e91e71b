"""`lake rename`: a table has another name, with all of its rows and its history; nothing else is changed."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from pyiceberg.catalog.sql import SqlCatalog

from flintmq.errors import ConfigurationError
from flintmq.lake.clean import clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.drop import drop
from flintmq.lake.latest.latest import latest
from flintmq.lake.rename.names import check_names
from flintmq.lake.store.store import StoreError, open_store
from flintmq.lake.tables.factory import OpenedTable, open_table, open_table_at, open_with_store
from flintmq.lake.tables.properties import REBUILDING, RENAMED
from flintmq.lake.tables.rename_pointer import (
    POINTER,
    RENAMES_MAX,
    RenamePointer,
    encode_pointer,
    put_pointer,
)
from flintmq.lake.tables.table import Conflict, Format, TableChange, TableError, TableRenamed
from support.lake.data_files import SCHEMA, TOPIC, rows_of
from support.lake.deaths import Killed, dying
from support.lake.renamed_tables import (
    DIRECTORIES,
    NEW,
    again,
    drop_all_old_names,
    engine_rows,
    renamed,
)
from support.lake.s3_server import BUCKET, S3Server
from support.lake.synced_lake import without_spark
from support.lake.table_location import TableLocation

WITHOUT_SPARK = True


@pytest.mark.parametrize("format", list(Format))
def test_engines_see_the_new_name_and_commands_go_on_naming_the_topic(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    before = place.fill([3, 2])
    done = renamed(place)
    assert [one.new.rpartition("/" if format is not Format.ICEBERG else ".")[2] for one in done.tables] == [
        NEW
    ]
    assert (done.files > 5) == (format is not Format.ICEBERG)
    assert engine_rows(place) == 50
    found = again(place)
    state = found.state()
    assert (state.progress, state.schema) == (before.progress, before.schema)
    assert RENAMED not in state.properties
    by_directory = open_table_at(f"{place.root}/{TOPIC}", format, {})
    assert by_directory.table.state() == state
    found.fill([2])
    compact(without_spark(), found.table, found.store)
    assert len(found.files()) == 1
    clean(found.table, found.store, keep_ms=0)
    assert engine_rows(place) == 70
    source, target = again(place), again(place, f"{TOPIC}__latest")
    assert latest(without_spark(), source.table, source.store, target.table, target.store).rows == 7
    assert engine_rows(place, f"{NEW}__latest") == 7
    # Only the log of the old directory is left, and the pointer.
    if format is not Format.ICEBERG:
        assert not (tmp_path / TOPIC / "data").exists()
        assert (tmp_path / TOPIC / POINTER).exists()
    assert renamed(place).tables == ()


@pytest.mark.parametrize("format", DIRECTORIES)
def test_older_versions_stay_readable(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([3, 2])
    compact(without_spark(), place.table, place.store)
    before = place.paths_in_store()
    renamed(place)
    found = again(place)
    assert found.paths_in_store() == before
    assert len(found.files()) == 1
    assert clean(found.table, found.store, keep_ms=3_600_000) == []
    if format is Format.DELTA:
        import deltalake

        assert deltalake.DeltaTable(str(tmp_path / NEW), version=2).version() == 2


@pytest.mark.parametrize(
    "format",
    [Format.PARQUET, *(pytest.param(one, marks=pytest.mark.long) for one in (Format.DELTA, Format.ICEBERG))],
)
def test_a_table_is_renamed_twice_and_goes_with_all_that_belongs_to_it(
    tmp_path: Path, format: Format
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1])
    TableLocation(tmp_path, format, f"{TOPIC}__latest").fill([1])
    assert len(renamed(place).tables) == 2
    # Made since, and so under the new name.
    TableLocation(tmp_path, format, f"{TOPIC}__quarantine").fill([1])
    assert engine_rows(place, f"{NEW}__quarantine") == 10
    done = renamed(place, "revenue")
    separator = "." if format is Format.ICEBERG else "/"
    names = [one.new.rpartition(separator)[2] for one in done.tables]
    assert names == ["revenue", "revenue__quarantine", "revenue__latest"]
    for suffix in ("", "__latest", "__quarantine"):
        again(place, TOPIC + suffix).fill([1])
        assert engine_rows(place, f"revenue{suffix}") == 20
    assert renamed(place, "revenue").tables == ()
    if format is Format.ICEBERG:
        renamed(place, TOPIC)
        again(place).fill([1])
        assert engine_rows(place, TOPIC) == 30
    else:
        with pytest.raises(TableError, match="choose another name"):
            renamed(place, TOPIC)


def test_a_directory_is_looked_up_over_a_bounded_number_of_renames(tmp_path: Path) -> None:
    names = [TOPIC, *(f"name{number}" for number in range(RENAMES_MAX))]
    for old, new in pairwise(names):
        pointer = RenamePointer(topic=TOPIC, name=new, source=old, to=new, format="parquet", is_done=True)
        put_pointer(open_store(str(tmp_path / old)), pointer)
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([1])
    assert place.table.location == str(tmp_path / names[-1])
    assert len(again(place).rows()) == 10
    with pytest.raises(TableError, match="16 times already"):
        renamed(place, "once-more")
    assert len(again(place).rows()) == 10


@pytest.mark.parametrize("format", list(Format))
def test_a_writer_with_the_old_table_in_hand_loses_and_makes_no_second_table(
    tmp_path: Path, format: Format
) -> None:
    place, other = TableLocation(tmp_path, format), TableLocation(tmp_path, format)
    place.fill([2])
    planned = other.state()
    file = other.write(planned, rows_of(range(20, 30)), 20, 30)
    renamed(place)
    with pytest.raises((Conflict, TableRenamed)):
        other.add(planned, [file], at=30)
    with pytest.raises(TableRenamed, match=f"named {NEW} now"):
        other.table.state() or other.table.create(SCHEMA)
    with pytest.raises(TableRenamed, match=f"named {NEW} now"):
        other.table.create(SCHEMA)
    assert engine_rows(place) == 20
    assert len(again(place).fill([1]).schema) == len(SCHEMA)
    assert engine_rows(place) == 30


@pytest.mark.parametrize("format", DIRECTORIES)
def test_files_behind_a_link_are_copied(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1])
    (tmp_path / TOPIC / "data").rename(tmp_path / "elsewhere")
    (tmp_path / TOPIC / "data").symlink_to(tmp_path / "elsewhere")
    renamed(place)
    assert engine_rows(place) == 10


# ---- what is refused


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "a b",
        "_hidden",
        ".hidden",
        "x__quarantine",
        "x__latest",
        "catalog.db",
        "é",
        "x" * 244,
    ],
)
def test_names_that_nothing_can_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no name for a table"):
        check_names(TOPIC, name)


def test_tables_that_go_with_another_are_not_renamed_alone() -> None:
    with pytest.raises(ConfigurationError, match="goes with the table of orders"):
        check_names("orders__latest", NEW)
    check_names("orders.eu-1_a", "Sales.eu-1_a")


@pytest.mark.parametrize("format", list(Format))
def test_a_name_that_is_taken_is_refused_and_nothing_is_changed(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    with pytest.raises(TableError, match="There is no"):
        renamed(place)
    with pytest.raises(TableError, match="There is no"):
        renamed(place, TOPIC)
    place.fill([1])
    for other in (NEW, f"{NEW}2__quarantine"):
        TableLocation(tmp_path, format, other).fill([1])
        with pytest.raises(TableError, match="already"):
            renamed(place, other.removesuffix("__quarantine"))
    (tmp_path / "files" / "data").mkdir(parents=True)
    (tmp_path / "files" / "data" / "x").write_text("x")
    with pytest.raises(TableError, match=r"files at .* already"):
        renamed(place, "files")
    assert renamed(place, TOPIC).tables == ()
    assert not (tmp_path / TOPIC / POINTER).exists()
    assert len(again(place).fill([1]).schema) == len(SCHEMA)
    assert len(again(place).rows()) == 20


@pytest.mark.parametrize("format", list(Format))
def test_a_table_that_is_being_rebuilt_is_refused(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1])

    def mark(*args: Any) -> bytes:
        """A rebuild begins between the first look and the fence."""
        place.table.commit(TableChange(base=place.state(), properties={REBUILDING: "1"}))
        return encode_pointer(*args)

    monkeypatch.setattr("flintmq.lake.rename.rename.encode_pointer", mark)
    for _ in range(2):
        with pytest.raises(TableError, match="Finish it with: flintmq lake rebuild"):
            renamed(place)
        monkeypatch.undo()
        assert len(again(place).rows()) == 10
    assert not (tmp_path / TOPIC / POINTER).exists()


def test_a_catalog_that_cannot_rename_is_named_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])
    renamed(place)

    def refuse(*args: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(SqlCatalog, "rename_table", refuse)
    with pytest.raises(TableError, match="cannot rename tables"):
        renamed(place, "revenue")
    again(place).fill([1])
    assert engine_rows(place) == 20


def test_a_catalog_whose_response_is_lost_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])
    rename_table = SqlCatalog.rename_table

    def lose(*args: Any) -> None:
        rename_table(*args)
        raise ConnectionError("gone")

    monkeypatch.setattr(SqlCatalog, "rename_table", lose)
    renamed(place)
    assert engine_rows(place) == 10

    def fail(*args: Any) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(SqlCatalog, "rename_table", fail)
    with pytest.raises(StoreError, match="Start again when the catalog answers"):
        renamed(place, "revenue")
    with pytest.raises(TableRenamed, match="flintmq lake rename orders revenue"):
        again(place)
    monkeypatch.undo()
    renamed(place, "revenue")
    assert engine_rows(place, "revenue") == 10


def test_a_catalog_that_renames_in_two_steps_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Glue does: a new entry, then the old one is removed."""
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])

    def half(catalog: SqlCatalog, old: Any, new: Any) -> None:
        catalog.register_table(new, catalog.load_table(old).metadata_location)
        raise Killed

    monkeypatch.setattr(SqlCatalog, "rename_table", half)
    with pytest.raises(Killed):
        renamed(place)
    monkeypatch.undo()
    renamed(place)
    assert place.catalog.list_tables("flintmq") == [("flintmq", NEW)]
    assert engine_rows(place) == 10


def test_an_iceberg_table_named_by_its_new_name_says_where_it_is(tmp_path: Path) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])
    renamed(place)
    with pytest.raises(TableError, match=f"name it by its topic, {TOPIC}"):
        open_table(str(tmp_path), NEW, Format.ICEBERG).state()


@pytest.mark.parametrize("format", [Format.PARQUET, pytest.param(Format.ICEBERG, marks=pytest.mark.long)])
def test_a_renamed_table_asked_for_in_another_format_is_named(tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1])
    renamed(place)
    for other in Format:
        if other is not format:
            opened = open_with_store(str(tmp_path), TOPIC, other)
            with pytest.raises(TableError, match=f"format {format}|named {NEW} now"):
                opened.table.create(SCHEMA)


# ---- drop, and object stores


@pytest.mark.parametrize("format", list(Format))
def test_a_renamed_table_is_dropped_and_its_topic_has_its_own_name_again(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([2])
    renamed(place)
    renamed(place, "revenue")
    found = again(place)
    drop(OpenedTable(found.table, found.store))
    with monkeypatch.context() as patched:
        dying(("flintmq.lake.store.local:LocalFileStore.delete", True, 2), patched)
        with pytest.raises(Killed):
            drop_all_old_names(place)
    drop_all_old_names(place)
    assert [one for one in os.listdir(tmp_path) if not one.startswith("catalog.db")] == []
    anew = again(place)
    anew.fill([1])
    assert engine_rows(place, TOPIC) == 10


@pytest.mark.parametrize(
    "format",
    [Format.PARQUET, *(pytest.param(one, marks=pytest.mark.long) for one in (Format.DELTA, Format.ICEBERG))],
)
def test_a_table_in_a_bucket_is_renamed(s3: S3Server, tmp_path: Path, format: Format) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db" if format is Format.ICEBERG else None
    place = TableLocation(f"s3://{BUCKET}/rename-{format}", format, settings=s3.settings, catalog=catalog)
    place.fill([2])
    old_store = place.store
    renamed(place)
    again(place).fill([1])
    assert engine_rows(place) == 30
    if format is not Format.ICEBERG:
        assert [one.path for one in old_store.list("data")] == []
    found = again(place)
    drop(OpenedTable(found.table, found.store))
    drop_all_old_names(place)
    assert list(old_store.list("")) == []
