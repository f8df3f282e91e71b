"""`flintmq lake sync` and `flintmq lake status` as they are typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from click.testing import CliRunner, Result

import flintmq.lake
from flintmq.cli.main import main
from flintmq.metrics.exposition import parse
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import Lake
from support.spark.spark_topics import TIME_MS, Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_TIMEOUT_S = 120.0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["lake", *arguments])


def test_sync_and_status_tell_what_was_done_and_what_is_left(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, numbered(0, 1200), partition=1)
    place = [topic, "--to", str(tmp_path / "lake"), "-b", broker.address]
    figures = tmp_path / "lake.prom"
    done = run("sync", *place, "--metrics-file", str(figures))
    assert done.exit_code == 0, done.output
    assert "1,200 rows in 1 file" in done.output
    assert "lag 0" in done.output
    scraped = parse(figures.read_text())
    assert scraped.total("flintmq_lake_rows_total", topic=topic) == 1200
    assert scraped.total("flintmq_lake_lag", topic=topic) == 0
    assert "nothing new" in run("sync", *place).output
    topics.write(topic, numbered(0, 7))
    told = run("status", *place)
    assert told.exit_code == 0, told.output
    assert "1,200 rows in 1 file" in told.output
    assert "lag 7" in told.output
    (found,) = json.loads(run("status", *place, "--json").output)
    assert (found["rows"], found["files"], found["lag"], found["quarantined"]) == (1200, 1, 7, 0)
    assert found["partitions"] == [
        {"partition": 0, "offset": 0, "end": 7, "lag": 7},
        {"partition": 1, "offset": 1200, "end": 1200, "lag": 0},
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--once", "--interval", "1s"], "exclude each other"),
        (["--interval", "soon"], "expected a duration"),
        (["--schema", "id long"], "add --decode json, avro or protobuf"),
        (["--decode", "jsn"], "expected one of raw, json, avro, protobuf"),
        (["--decode", "avro"], "add --schema FILE or --registry URL"),
        (["--partition-by", "timestamp:week"], "such as timestamp:day"),
        (["--partition-by", "nothing"], "there is no such column"),
        (["--partition-by", "value"], "not partitioned by a column of binary"),
        (["--quarantine", "elsewhere"], "expected table, or topic:NAME"),
        (["--decode", "json", "--schema", "nofile"], "there is no such file"),
        (["--file-size", "much"], "expected a size"),
        (["--store", "endpoint"], "expected NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    arguments: list[str],
    words: str,
) -> None:
    topics.create(topic)
    done = run("sync", topic, "--to", str(tmp_path / "lake"), "-b", broker.address, *arguments)
    assert done.exit_code == 2, done.output
    assert words in done.output


def test_a_sync_without_decode_continues_as_the_table_is(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, [(None, b'{"id": 1}', TIME_MS, ()), (None, b"no JSON", TIME_MS, ())])
    place = [topic, "--to", str(tmp_path), "-b", broker.address]
    first = run("sync", *place, "--decode", "json", "--schema", "id long", "--into", "body")
    assert "1 row in 1 file" in first.output, first.output
    assert f"flintmq lake quarantine list {topic} --to {tmp_path} --format parquet" in first.stderr
    topics.write(topic, [(None, b'{"id": 2}', TIME_MS, ()), (None, b"still no JSON", TIME_MS, ())])
    second = run("sync", *place)
    assert second.exit_code == 0, second.output
    assert "1 row in 1 file" in second.output
    assert "1 record quarantined" in second.output
    topics.write(topic, [(None, b'{"id": 3}', TIME_MS, ())])
    assert "1 row in 1 file" in run("sync", *place, "--decode", "json").output
    (found,) = json.loads(run("status", *place, "--json").output)
    assert (found["decode"], found["rows"], found["quarantined"], found["lag"]) == ("json", 3, 2, 0)
    for options in (["--decode", "raw"], ["--decode", "json", "--into", "other"]):
        refused = run("sync", *place, *options)
        assert refused.exit_code == 2, refused.output
        assert "was made with --decode json --into body" in refused.output
        assert "flintmq lake rebuild" in refused.output


def test_a_topic_or_table_that_is_not_there_is_said(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    place = ["--to", "/nowhere/lake", "-b", broker.address]
    assert "there is no topic" in run("status", topic, *place).output.lower()
    topics.create(topic)
    done = run("status", topic, *place)
    assert done.exit_code == 1
    assert "flintmq lake sync" in done.output


def test_the_same_from_python(
    spark: SparkSession, lake: Lake, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    outcome = flintmq.lake.sync(spark, topic, to=lake.root, bootstrap_servers=broker.address)
    assert outcome.rows == 5
    assert len(lake.rows(topic)) == 5


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_sync_that_follows_ends_cleanly_when_it_is_told_to(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    command = [sys.executable, "-m", "flintmq", "lake", "sync", topic, "--to", str(tmp_path / "lake")]
    command += ["-b", broker.address, "--interval", "1s", "--master", "local[1]"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "errors").open("wb") as errors:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert program.stdout is not None
        assert "5 rows" in program.stdout.readline()
        topics.write(topic, numbered(5, 3))
        assert "3 rows" in program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        assert program.wait(RUN_TIMEOUT_S) == 0, (tmp_path / "errors").read_text()
    finally:
        program.kill()
        program.wait()
