"""Spark only when there is work, and not for little work (P4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.errors import FlintError
from flintmq.lake.fan_out import FanOut
from flintmq.lake.limits import InProcessLimits
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.sync import Sync
from flintmq.lake.tables.table import TableError
from flintmq.spark.lazy_session import LazySession
from support.broker.broker_process import BrokerProcess
from support.spark.spark_topics import Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.lake.synced_lake import Lake

RUN_TIMEOUT_S = 120.0
NO_JAVA = "/nowhere"

# What the command has imported is printed after its own output.
PROGRAM = """
import json, sys
from flintmq.cli.main import main
try:
    main(sys.argv[1:], prog_name="flintmq")
except SystemExit as end:
    heavy = [name for name in ("pyspark", "pandas") if name in sys.modules]
    print(json.dumps({"code": end.code, "heavy": heavy}))
"""


class Opened(Exception):
    """The session was asked for."""


def unopened(*, is_optional: bool = True) -> LazySession:
    def open() -> SparkSession:
        raise Opened

    return LazySession(open, is_optional=is_optional)


def double(item: int) -> int:
    return 2 * item


def refuse(item: int) -> int:
    raise FlintError(f"{item} is refused")


def break_down(item: int) -> int:
    raise ZeroDivisionError(str(item))


@pytest.fixture
def fan_out() -> Iterator[FanOut]:
    with FanOut(
        unopened(), "test", poll_s=0.01, in_process=InProcessLimits(items_max=3, bytes_max=10)
    ) as made:
        yield made


def test_little_work_is_done_without_a_session(fan_out: FanOut) -> None:
    told: list[tuple[int, int]] = []
    results = fan_out.map(
        [1, 2, 3], double, int, work_bytes=10, on_progress=lambda *progress: told.append(progress)
    )
    assert results == [2, 4, 6]
    assert told[-1] == (3, 3)


def test_no_work_needs_no_session_whatever_its_size(fan_out: FanOut) -> None:
    assert fan_out.map([], double, int) == []


@pytest.mark.parametrize(
    ("items", "work_bytes"),
    [([1, 2, 3, 4], 10), ([1], 11), ([1], None)],
    ids=["many-items", "many-bytes", "unknown"],
)
def test_work_beyond_the_limits_opens_the_session(
    fan_out: FanOut, items: list[int], work_bytes: int | None
) -> None:
    with pytest.raises(Opened):
        fan_out.map(items, double, int, work_bytes=work_bytes)


def test_a_session_that_was_asked_for_is_used_for_little_work_too() -> None:
    with FanOut(unopened(is_optional=False), "test") as fan_out, pytest.raises(Opened):
        fan_out.map([1], double, int, work_bytes=1)


def test_an_error_of_the_work_is_the_same_as_from_a_worker(fan_out: FanOut, spark: SparkSession) -> None:
    with pytest.raises(TableError, match=r"^1 is refused$"):
        fan_out.map([1], refuse, int, work_bytes=1)
    with FanOut(spark, "test") as workers, pytest.raises(TableError, match=r"^1 is refused$"):
        workers.map([1], refuse, int)


def test_what_breaks_down_in_this_process_is_given_to_spark(
    fan_out: FanOut, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Opened):
        fan_out.map([1], break_down, int, work_bytes=1)
    assert "given to Spark" in caplog.text


def test_work_that_is_stopped_ends_after_the_item_under_way(fan_out: FanOut) -> None:
    begun, stopped, done = threading.Event(), threading.Event(), []

    def work(item: int) -> int:
        begun.set()
        assert stopped.wait(RUN_TIMEOUT_S)
        done.append(item)
        return item

    def check() -> None:
        if begun.is_set():
            stopped.set()
            raise FlintError("stopped")

    with pytest.raises(FlintError, match="stopped"):
        fan_out.map([1, 2, 3], work, int, work_bytes=1, check=check)
    assert done == [1]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_files_are_the_same_with_and_without_spark(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path, format: str
) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, numbered(0, 100))
    topics.write(topic, numbered(0, 50), partition=1)
    lake.sync(topic, format=format)
    alone = tmp_path / "alone"
    options = make_options([topic], to=str(alone), format=format, bootstrap_servers=broker.address)
    with Sync(unopened(), options) as sync:
        assert sync.run().rows == 150
    made, expected = data_files(alone / topic), data_files(Path(lake.root) / topic)
    assert len(made) == 2
    assert made == expected


def data_files(table: Path) -> dict[str, bytes]:
    return {one.relative_to(table).as_posix(): one.read_bytes() for one in table.rglob("*.parquet")}


def test_commands_with_little_work_or_none_need_neither_spark_nor_java(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-again")
    topics.write(topic, numbered(0, 5))
    place = ["--to", str(tmp_path / "lake")]
    address = ["-b", broker.address]
    for words, arguments in (
        ("5 rows in 1 file", ["sync", topic, *place, *address]),
        ("nothing new", ["sync", topic, *place, *address]),
        ("lag 0", ["status", topic, *place, *address]),
        ("agrees", ["audit", topic, *place, *address]),
        ("nothing to merge", ["compact", topic, *place]),
        ("keys", ["latest", topic, *place]),
        ("5 rows", ["replay", topic, *place, *address, "--to-topic", f"{topic}-again"]),
    ):
        said, end = run_alone("lake", *arguments)
        assert end == {"code": 0, "heavy": []}, (arguments, said)
        assert words in said


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_a_broker_that_is_away_and_a_misspelt_topic_are_told_before_spark_starts(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path, format: str
) -> None:
    topics.create(topic)
    place = ["--to", str(tmp_path / "lake"), "--format", format]
    for command in ("sync", "status"):
        said, end = run_alone("lake", command, topic, *place, "-b", "127.0.0.1:1")
        assert end == {"code": 3, "heavy": []}
        assert "no broker answers at 127.0.0.1:1" in said
        said, end = run_alone("lake", command, f"{topic}x", *place, "-b", broker.address)
        assert end == {"code": 1, "heavy": []}
        assert f"there is no topic {topic}x; did you mean {topic}?" in said
    assert not (tmp_path / "lake").exists(), "nothing is made for a topic that is not there"


def run_alone(*arguments: str) -> tuple[str, dict[str, object]]:
    """Where no Spark could start: there is no Java."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, "JAVA_HOME": NO_JAVA, "PATH": NO_JAVA},
    )
    *said, last = done.stdout.splitlines()
    return "\n".join(said) + done.stderr, json.loads(last)
