"""Syncs that go on while things change: schemas, retention, records that arrive; and who watches or stops them."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import fastavro

from flintmq.arrow.formats.schema_registry import RegistryError
from flintmq.cli.common.progress import Progress
from flintmq.cli.main import main
from flintmq.lake.audit.audit import audit
from flintmq.lake.syncing.metrics import TableCommit
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.planner import SyncGap
from flintmq.lake.syncing.range_runner import RangeRunner
from flintmq.metrics.exposition import parse
from support.broker.broker_process import BrokerProcess
from support.cli.terminal import Terminal
from support.lake.sync_process import LakeProcess
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.pipeline.schema_registry import Registry, serving
from support.spark.spark_topics import TIME_MS, Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES = 12

# ---- schemas


def schema(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", "string"], "default": None} for name in names]
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, *fields],
    }


def framed(
    schema_id: int, kind: dict[str, Any], value: dict[str, Any]
) -> tuple[bytes, bytes, int, tuple[()]]:
    written = BytesIO()
    fastavro.schemaless_writer(written, kind, value)
    return b"k", b"\0" + schema_id.to_bytes(4, "big") + written.getvalue(), TIME_MS, ()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as one:
        yield one


@pytest.mark.parametrize(
    "format", [FORMATS[0], *(pytest.param(one, marks=pytest.mark.long) for one in FORMATS[1:])]
)
def test_schemas_that_a_registry_gets_meanwhile_bring_their_columns(
    lake: Lake, topics: Topics, topic: str, registry: Registry, format: str
) -> None:
    """A producer registers a schema and writes with it, while a sync follows; the workers meet it first."""
    kinds = [schema(), schema("city"), schema("city", "street")]
    topics.create(topic)
    names: list[list[str]] = []

    def write(number: int) -> None:
        registry.add(f"{topic}-value", number + 1, json.dumps(kinds[number]))
        value = {"id": number, "city": "Oslo", "street": "x"}
        topics.write(topic, [framed(number + 1, kinds[number], value)])

    def heard(commit: TableCommit) -> None:
        names.append([one for one in lake.state(topic, format).schema.names if one not in ORIGIN])
        if len(names) < len(kinds):
            write(len(names))
        else:
            sync.stop()

    registry.password = "reader:secret"
    url = registry.url.replace("http://", "http://reader:secret@")
    write(0)
    with lake.open(topic, format=format, decode="avro", registry=url, on_commit=heard) as sync:
        sync.follow(interval_s=0.05)
    assert names == [["id"], ["id", "city"], ["id", "city", "street"]]
    rows = lake.rows(topic, format)
    assert [(row["id"], row["city"], row["street"]) for row in rows] == [
        (0, None, None),
        (1, "Oslo", None),
        (2, "Oslo", "x"),
    ]
    # What is kept with the table says where the registry is, and not how to get in.
    assert "secret" not in str(lake.state(topic, format).properties)


ORIGIN = ("partition", "offset", "timestamp", "key")


def test_a_registry_that_is_away_is_no_reason_to_quarantine(
    lake: Lake, topics: Topics, topic: str, registry: Registry
) -> None:
    topics.create(topic)
    registry.add(f"{topic}-value", 1, json.dumps(schema()))
    topics.write(topic, [framed(1, schema(), {"id": 1})])
    registry.failures = 1000
    with pytest.raises(RegistryError, match="cannot be asked"):
        lake.sync(topic, decode="avro", registry=registry.url)
    registry.failures = 0
    outcome = lake.sync(topic, decode="avro", registry=registry.url)
    assert (outcome.rows, outcome.quarantined) == (1, 0)


# ---- retention


@pytest.fixture
def overtaken(lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table of 10 rows, and a topic of 30 whose retention goes on to 20 while the workers read."""
    # Each batch is a segment: its file is deleted too.
    topics.create(topic, configs={"segment.bytes": "300"})
    topics.write(topic, numbered(0, 10))
    lake.sync(topic)
    for first in (10, 20):
        topics.write(topic, numbered(first, 10))
    run = RangeRunner.run
    passed: list[bool] = []

    def while_deleting(self: RangeRunner, *args: Any, **options: Any) -> Any:
        if not passed:
            passed.append(True)
            topics.delete_before(topic, 20)
        return run(self, *args, **options)

    monkeypatch.setattr(RangeRunner, "run", while_deleting)
    return lake


def test_retention_that_passes_the_workers_is_told_at_the_terminal_if_gaps_are_allowed(
    overtaken: Lake, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a process of its own, where nobody else has asked for the log.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    arguments = ["lake", "sync", topic, "--to", overtaken.root, "-b", broker.address, "--allow-gaps"]
    with Terminal() as terminal, terminal.as_stderr():
        main(arguments, standalone_mode=False)
    assert f"WARNING {topic}-0, offsets 10 to 19 are deleted" in terminal.text
    assert [row["offset"] for row in overtaken.rows(topic)] == [*range(10), *range(20, 30)]


def test_retention_that_passes_the_workers_is_an_error_otherwise(overtaken: Lake, topic: str) -> None:
    with pytest.raises(SyncGap, match="offsets 10 to 19 are deleted"):
        overtaken.sync(topic)
    assert [row["offset"] for row in overtaken.rows(topic)] == list(range(10))


# ---- somebody who watches


@pytest.fixture
def slow(topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of many ranges, and a bar that is shown at once."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("flintmq.cli.common.progress.QUIET_S", 0.0)
    topics.create(topic, configs={"segment.bytes": "300"})
    for number in range(PIECES):
        topics.write(topic, numbered(number * 10, 10))
    return topic


def test_a_terminal_shows_how_far_a_sync_and_an_audit_are(
    spark: SparkSession, broker: BrokerProcess, slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"to": str(tmp_path / "lake"), "bootstrap_servers": broker.address}
    arguments = ["sync", slow, "--to", options["to"], "-b", broker.address, "--file-size", "300B"]
    # Little work is done before there is anything to show, unless Spark is asked for.
    arguments += ["--master", "local[2]"]
    with Terminal() as terminal, terminal.as_stderr():
        main(["lake", *arguments], standalone_mode=False)
    _check_bar(terminal, "writing")
    assert f"{10 * PIECES} rows in {PIECES} files" in capsys.readouterr().out
    with Terminal() as terminal, terminal.as_stderr(), Progress("comparing") as progress:
        audit(spark, make_options([slow], **options), on_progress=progress.tell_pieces, section_bytes=1)
    _check_bar(terminal, "comparing")


def _check_bar(terminal: Terminal, doing: str) -> None:
    assert doing in terminal.text
    assert f"of {PIECES} pieces" in terminal.text
    # The bar is gone at the end: the cursor goes up and the line is cleared.
    assert terminal.text.rstrip("\r\n").endswith("\x1b[2K")


# ---- a process that follows


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_continuous_sync_takes_what_arrives_and_ends_well_in_the_middle_of_work(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2, configs={"segment.bytes": "300"})
    arguments = ["sync", topic, "--to", lake.root, "-b", broker.address, "--json"]
    arguments += ["--continuous", "--file-size", "300B", "--metrics-port", "0"]
    committed = 0
    topics.write(topic, numbered(0, 10))
    with LakeProcess(arguments, tmp_path / "log") as sync:
        for first in range(10, 100, 10):
            committed += json.loads(sync.line())["rows"]
            assert committed == first
            topics.write(topic, numbered(first, 10), partition=first // 10 % 2)
        committed += json.loads(sync.line())["rows"]
        url = next(line for line in sync.errors.splitlines() if "figures at" in line).partition("at ")[2]
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert parse(answer.read().decode()).total("flintmq_lake_rows_total") == committed == 100
        # So much that it is not done when it is told to stop, once its first commit of it has been seen.
        for number in range(200):
            topics.write(topic, numbered(100 + number * 10, 10), partition=number % 2)
            if number == 20:
                sync.line()
        sync.terminate()
        sync.wait()
        assert "Traceback" not in sync.errors
    lake.sync(topic)
    assert lake.rows(topic) == topic_rows(broker.address, topic)
    assert len(lake.rows(topic)) == 2100
