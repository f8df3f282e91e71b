"""A table that is asked for in the wrong format, or whose files are gone: the error names what is there (P4)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from flintmq.cli.main import main
from flintmq.lake.clean import clean
from flintmq.lake.store.store import StoreError
from flintmq.lake.tables.factory import open_table, open_with_store
from flintmq.lake.tables.other_formats import formats_at, missing_table
from flintmq.lake.tables.table import Format, TableError
from support.cli.command import run
from support.lake.data_files import SCHEMA, TOPIC
from support.lake.table_location import TableLocation

if TYPE_CHECKING:
    from support.lake.s3_server import S3Server


WITHOUT_SPARK = True


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("asked", Format)
def test_a_table_of_another_format_is_named(tmp_path: Path, format: Format, asked: Format) -> None:
    made = TableLocation(tmp_path, format)
    made.fill([1])
    assert formats_at(made.store) == [format]
    if asked is format:
        return
    opened = open_with_store(str(tmp_path), TOPIC, asked)
    assert opened.table.state() is None
    error = missing_table(opened.table, opened.store, advice="make it")
    assert str(error) == (
        f"There is no {asked} table at {made.table.location}, but there is one of the format {format}: add --format "
        f"{format}."
    )
    with pytest.raises(TableError, match=f"add --format {format}"):
        clean(opened.table, opened.store)
    # A second table would take the first one's data files for leftovers.
    with pytest.raises(
        TableError, match=f"is a table of the format {format}, and cannot be one of {asked} too"
    ):
        opened.table.create(SCHEMA)
    assert formats_at(made.store) == [format]
    assert len(made.rows()) == 10


def test_a_table_of_another_format_is_found_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    root = "s3://lake/other-formats"
    made = TableLocation(root, Format.DELTA, settings=s3.settings)
    made.fill([1])
    opened = open_with_store(root, TOPIC, "parquet", settings=s3.settings)
    assert "add --format delta" in str(missing_table(opened.table, opened.store))


def test_where_there_is_nothing_the_advice_is_given(tmp_path: Path) -> None:
    opened = open_with_store(str(tmp_path), TOPIC, "parquet")
    error = missing_table(opened.table, opened.store, advice="sync the topic first")
    assert str(error) == f"There is no parquet table at {tmp_path}/{TOPIC}; sync the topic first."
    assert (
        str(missing_table(opened.table, opened.store)) == f"There is no parquet table at {tmp_path}/{TOPIC}."
    )


def test_an_iceberg_table_of_another_catalog_is_named(tmp_path: Path) -> None:
    TableLocation(tmp_path, Format.ICEBERG).fill([1])
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    opened = open_with_store(str(tmp_path), TOPIC, "iceberg", catalog=elsewhere)
    assert opened.table.state() is None
    assert "give the --catalog and the --namespace" in str(missing_table(opened.table, opened.store))


@pytest.mark.parametrize("command", ["files", "clean"])
def test_the_commands_say_it_in_one_line(tmp_path: Path, command: str) -> None:
    TableLocation(tmp_path, Format.DELTA).fill([1])
    assert "add --format delta" in run("lake", command, TOPIC, "--to", str(tmp_path), code=1).error


def test_an_iceberg_table_whose_directory_was_removed_is_noticed(tmp_path: Path) -> None:
    made = TableLocation(tmp_path, Format.ICEBERG)
    made.fill([1])
    shutil.rmtree(made.table.location)
    table = open_table(str(tmp_path), TOPIC, Format.ICEBERG)
    with pytest.raises(TableError, match=f"its files at {made.table.location} are gone") as caught:
        table.state()
    # What the message says to do is done, word for word.
    advice = str(caught.value).partition("in Python: ")[2].partition(") and ")[0]
    names: dict[str, Any] = {"load_catalog": load_catalog}
    eval(advice, names)
    assert table.state() is None
    assert table.create(SCHEMA).progress == {}


@pytest.mark.parametrize("format", list(Format))
def test_commands_that_only_look_create_nothing(tmp_path: Path, format: Format) -> None:
    """A misspelt --to leaves no directory and no catalog behind."""
    root = tmp_path / "misspelt"
    for command in ("files", "compact", "clean", "drop", "latest"):
        done = CliRunner().invoke(
            main, ["lake", command, "orders", "--to", str(root), "--format", str(format)]
        )
        assert done.exit_code == 1, done.output
        assert f"no {format} table" in done.output
    assert not root.exists()


@pytest.mark.parametrize("format", list(Format))
def test_a_root_that_is_a_file_is_an_error_that_names_the_option(tmp_path: Path, format: Format) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"is a file.*--to"):
        open_table(str(tmp_path / "file"), TOPIC, format).create(SCHEMA)


def test_a_table_that_another_process_creates_is_found_later(tmp_path: Path) -> None:
    early = open_table(str(tmp_path), TOPIC, Format.ICEBERG)
    assert early.state() is None
    TableLocation(tmp_path, Format.ICEBERG).fill([1])
    assert early.state() is not None


def test_an_iceberg_table_whose_files_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    """Its catalog can be written."""
    (tmp_path / TOPIC).mkdir()
    (tmp_path / TOPIC / "metadata").touch()
    table = open_table(str(tmp_path), TOPIC, Format.ICEBERG)
    with pytest.raises(StoreError, match="cannot be read or written"):
        table.create(SCHEMA)
