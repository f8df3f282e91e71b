"""`kill -9` of a replay from quarantine and of a rebuild: afterwards each record is in the table or in quarantine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.audit.audit import audit
from flintmq.lake.quarantine.open import open_quarantined
from flintmq.lake.quarantine.records import listed
from flintmq.lake.quarantine.replay import replay_quarantined
from flintmq.lake.rebuild import rebuild
from flintmq.lake.syncing.options import make_options
from support.lake import repair_program
from support.lake.repair_program import MILD, steps_of
from support.lake.s3_server import BUCKET, S3Server
from support.lake.synced_lake import FORMATS, Lake
from support.spark.spark_topics import TIME_MS, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRICT = "id long, name string not null"
RUN_TIMEOUT_S = 180.0


def record(number: int, name: str) -> Any:
    return (b"k", b'{"id": %d%s}' % (number, name.encode()), TIME_MS, ())


def write_some(lake: Lake, topics: Topics, topic: str, format: str, first: int) -> None:
    """A row, a record that MILD takes, and garbage; then a row as MILD has it."""
    named = ', "name": "n"'
    topics.write(topic, [record(first, named), record(first + 1, ""), (b"k", b"{", TIME_MS, ())])
    lake.sync(topic, format=format, decode="json", schema=STRICT)
    topics.write(topic, [record(first + 3, named)])
    lake.sync(topic, format=format, decode="json", schema=MILD)


def check(lake: Lake, topic: str, format: str, end: int) -> None:
    """Every offset is in the table or in the quarantine, once."""
    source = open_quarantined(lake.root, topic, format, settings=lake.settings)
    there = [one.position.offset for one in listed(source, limit=1000)]
    rows = [row["offset"] for row in lake.rows(topic, format)]
    assert sorted([*rows, *there]) == list(range(end))
    options = make_options(
        [topic], to=lake.root, format=format, bootstrap_servers=lake.address, store=lake.settings
    )
    (found,) = audit(lake.spark, options)
    assert found.is_good, found.problems


def kill(lake: Lake, operation: str, topic: str, format: str, step: str) -> None:
    path = os.pathsep.join(one for one in sys.path if one)
    log = Path(f"{lake.root}.{operation}-{step}.log")
    command = [
        sys.executable, repair_program.__file__, operation, lake.address, topic, lake.root, format, step,
    ]  # fmt: skip
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
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    assert code == -signal.SIGKILL, (step, log.read_text(errors="replace")[-4000:])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("operation", ["replay", "rebuild"])
def test_who_is_killed_at_any_step_is_made_up_for(
    lake: Lake, topics: Topics, topic: str, operation: str, format: str
) -> None:
    topics.create(topic)
    end = 0
    for step in steps_of(operation, format):
        write_some(lake, topics, topic, format, end)
        end += 4
        kill(lake, operation, topic, format, step)
        if operation == "replay":
            check(lake, topic, format, end)
        lake.sync(topic, format=format, decode="json", schema=MILD)
        check(lake, topic, format, end)
    replay_quarantined(lake.spark, open_quarantined(lake.root, topic, format))
    check(lake, topic, format, end)
    assert len(lake.rows(topic, format)) == end // 4 * 3


@pytest.mark.parametrize("format", ["parquet", pytest.param("delta", marks=pytest.mark.long)])
def test_records_in_a_bucket_are_replayed_and_a_table_is_rebuilt_there(
    spark: SparkSession, lake: Lake, topics: Topics, topic: str, s3: S3Server, format: str
) -> None:
    topics.create(topic)
    remote = Lake(spark, lake.address, f"s3://{BUCKET}/repair-{format}", settings=s3.settings)
    write_some(remote, topics, topic, format, 0)
    source = open_quarantined(remote.root, topic, format, settings=remote.settings)
    done = replay_quarantined(spark, source)
    assert (done.replayed, done.left) == (1, 1)
    check(remote, topic, format, 4)
    options = make_options(
        [topic], to=remote.root, format=format, bootstrap_servers=lake.address, store=remote.settings
    )
    assert rebuild(spark, options).rows == 3
    check(remote, topic, format, 4)
