"""`kill -9` of driver and workers at every step between plan and commit: afterwards the table equals the topic."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from support.broker.broker_process import BrokerProcess
from support.lake import sync_program
from support.lake.sync_program import COMMITS, DRIVER_STEPS, WORKER_STEPS
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_TIMEOUT_S = 180.0

# Spark is started once for every step.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def run(broker: BrokerProcess, topic: str, root: Path, format: str, step: str) -> int:
    """The exit code; below 0 it is the signal that ended it."""
    command = [sys.executable, sync_program.__file__, broker.address, topic, str(root), format, step]
    path = os.pathsep.join(one for one in sys.path if one)
    log = root.with_suffix(f".{step}.log")
    with log.open("wb") as errors:
        program = subprocess.Popen(
            command,
            stdout=errors,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            code = program.wait(RUN_TIMEOUT_S)
        finally:
            # The JVM, and what workers are left: as if the machine had gone down.
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    expected = -signal.SIGKILL if step in {**DRIVER_STEPS, **COMMITS[format]} else 0
    assert code == expected, (step, log.read_text(errors="replace")[-4000:])
    return code


def write_some(topics: Topics, topic: str, round_number: int) -> None:
    """Also what no decoder takes, so that there is a quarantine to be settled."""
    for partition in range(2):
        records = [(b"k", b'{"id": %d}' % (round_number * 10 + number), TIME_MS, ()) for number in range(10)]
        topics.write(topic, [*records, (None, b"poison", TIME_MS, ())], partition=partition)


def check(lake: Lake, broker: BrokerProcess, topic: str, format: str) -> None:
    expected = topic_rows(broker.address, topic)
    rows = lake.rows(topic, format)
    assert [(row["partition"], row["offset"], b'{"id": %d}' % row["id"]) for row in rows] == [
        (row["partition"], row["offset"], row["value"]) for row in expected if row["value"] != b"poison"
    ]
    poison = lake.rows(f"{topic}__quarantine", format)
    assert [(row["partition"], row["offset"], row["value"]) for row in poison] == [
        (row["partition"], row["offset"], row["value"]) for row in expected if row["value"] == b"poison"
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_driver_killed_at_any_step_is_made_up_for_by_the_next(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path, format: str
) -> None:
    topics.create(topic, partitions=2)
    root = tmp_path / "lake"
    steps = [*DRIVER_STEPS, *COMMITS[format]]
    for round_number, step in enumerate(steps):
        write_some(topics, topic, round_number)
        run(broker, topic, root, format, step)
    run(broker, topic, root, format, "none")
    check(Lake(spark, broker.address, str(root)), broker, topic, format)


def test_workers_killed_at_any_step_are_made_up_for_by_other_attempts(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2)
    root = tmp_path / "lake"
    for round_number, step in enumerate(WORKER_STEPS):
        write_some(topics, topic, round_number)
        run(broker, topic, root, "parquet", step)
        assert Path(f"{root}.{step}").exists(), f"nobody died at {step}"
        check(Lake(spark, broker.address, str(root)), broker, topic, "parquet")
