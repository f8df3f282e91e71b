"""`flintmq lake compact`, `latest`, `clean` and `files`, as the program runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from flintmq.cli.lake.main import command as lake
from flintmq.lake.tables.table import Format
from support.lake.data_files import TOPIC, rows_of
from support.lake.table_location import TableLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*args: str) -> Result:
    return CliRunner().invoke(lake, args, catch_exceptions=False)


@pytest.mark.parametrize("format", list(Format))
def test_a_table_is_merged_listed_and_cleaned(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    place = TableLocation(tmp_path, format)
    state = place.fill([5])
    where = ("--to", str(tmp_path), "--format", str(format))
    done = run("compact", TOPIC, *where, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["files_before"], told["files_after"], told["rows"]) == (5, 1, 50)

    listed = run("files", TOPIC, *where)
    (path,) = listed.stdout.split()
    assert path == f"{place.table.location}/{place.files()[0].path}"
    (one,) = json.loads(run("files", TOPIC, *where, "--json").stdout)
    assert (one["rows"], one["start_offset"], one["end_offset"], one["topic"]) == (50, 0, 50, TOPIC)

    place.write(state, rows_of(range(40, 48)), 40, 48)
    for options in (("--dry-run",), ()):
        cleaned = run("clean", TOPIC, *where, *options)
        assert "-40-48-" in cleaned.stdout
        assert "1 file, " in cleaned.stdout
    assert "0 files" in run("clean", TOPIC, *where).stdout
    assert place.rows().num_rows == 50


def test_the_latest_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    TableLocation(tmp_path, Format.PARQUET).fill([2])
    done = run("latest", TOPIC, "--to", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 7
    assert "7 keys, 0 new offsets read" in run("latest", TOPIC, "--to", str(tmp_path)).stdout


def test_what_is_not_there_or_makes_no_sense_is_said(tmp_path: Path) -> None:
    for name in ("clean", "files"):
        done = run(name, "nothing", "--to", str(tmp_path))
        assert done.exit_code == 1
        assert "there is no" in done.output.lower()
    done = run("compact", TOPIC, "--to", str(tmp_path), "--target-size", "large")
    assert done.exit_code == 2
    assert "expected a size" in done.output
