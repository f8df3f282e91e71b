"""A disk that fills up under a sync: a clear word, a table as it was; the next sync goes on when there is room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.backfill.backfill import backfill
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.sync import SyncUnavailable
from flintmq.lake.syncing.synced_table import PreparedTable
from flintmq.lake.tables.table import TableError
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DISK_BYTES = 4 << 20
RECORD_BYTES = 900_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, and a small one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "flintmq-test", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("toolchain: mount, which a small disk is made with")
    if done.returncode:
        pytest.skip(f"toolchain: a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_lake(spark: SparkSession, broker: BrokerProcess, disk: Path) -> Lake:
    return Lake(spark, broker.address, str(disk / "lake"))


def fill(disk: Path) -> Path:
    """Up to the last byte."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free))
    assert shutil.disk_usage(disk).free == 0
    return ballast


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_BYTES}", str(disk)], check=True)


@pytest.mark.parametrize(
    "format", [FORMATS[0], *(pytest.param(one, marks=pytest.mark.long) for one in FORMATS[1:])]
)
def test_files_that_do_not_fit_are_an_error_and_the_table_stays_as_it_was(
    small_lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, disk: Path, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    small_lake.sync(topic, format=format)
    before = small_lake.state(topic, format).progress
    # More than there is room for, however it is compressed.
    for _ in range(1 + DISK_BYTES // RECORD_BYTES):
        topics.write(topic, [(b"k", os.urandom(RECORD_BYTES), TIME_MS, ())])
    with pytest.raises(SyncUnavailable, match=r"No space left on device.*See to the disk, then start again"):
        small_lake.sync(topic, format=format)
    assert small_lake.state(topic, format).progress == before
    assert len(small_lake.rows(topic, format)) == 10
    assert not [path for path in disk.rglob("drafts/*") if path.is_file()], "what was begun takes no room"
    enlarge(disk)
    small_lake.sync(topic, format=format)
    assert small_lake.rows(topic, format) == topic_rows(broker.address, topic)


@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_that_does_not_fit_is_an_error_and_the_table_stays_as_it_was(
    small_lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    """The workers' files fit, and what names them does not."""
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    small_lake.sync(topic, format=format)
    before = small_lake.state(topic, format).progress
    topics.write(topic, numbered(10, 10))
    commit = PreparedTable.commit

    def when_full(self: PreparedTable, *args: Any) -> None:
        ballast = fill(disk)
        try:
            commit(self, *args)
        finally:
            ballast.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(PreparedTable, "commit", when_full)
        with pytest.raises(StoreError, match=r"(?i)no space left.*then start again"):
            small_lake.sync(topic, format=format)
    assert small_lake.state(topic, format).progress == before
    assert len(small_lake.rows(topic, format)) == 10
    small_lake.sync(topic, format=format)
    assert small_lake.rows(topic, format) == topic_rows(broker.address, topic)


def test_a_backfill_that_does_not_fit_changes_nothing_and_may_be_run_again(
    small_lake: Lake, topics: Topics, topic: str, disk: Path
) -> None:
    topics.create(topic)
    for number in range(3 * DISK_BYTES // RECORD_BYTES):
        value = {"id": number, "noise": os.urandom(RECORD_BYTES // 2).hex()}
        topics.write(topic, [(b"k", json.dumps(value).encode(), TIME_MS, ())])
    small_lake.sync(topic, decode="json", schema="id long")
    small_lake.sync(topic, decode="json", schema="id long, noise string")
    options = make_options([topic], to=small_lake.root, bootstrap_servers=small_lake.address)
    with pytest.raises(TableError, match="No space left on device"):
        backfill(small_lake.spark, options)
    assert all(row.get("noise") is None for row in small_lake.rows(topic))
    enlarge(disk)
    (report,) = backfill(small_lake.spark, options)
    assert report.filled == len(small_lake.rows(topic))
    assert all(len(row["noise"]) == RECORD_BYTES for row in small_lake.rows(topic))
