"""`kill -9` of a rename: the table is refused until the same command finishes it, and each record is in it once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.audit.audit import audit
from flintmq.lake.syncing.options import make_options
from flintmq.lake.tables.table import TableRenamed
from support.cli.command import run
from support.lake import rename_program
from support.lake.rename_program import DONE, STEPS
from support.lake.synced_lake import FORMATS, Lake
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True
RUN_TIMEOUT_S = 180.0
JSON: dict[str, Any] = {"decode": "json", "schema": "id long"}


def kill(lake: Lake, topic: str, name: str, format: str, step: str) -> None:
    path = os.pathsep.join(one for one in sys.path if one)
    command = [sys.executable, rename_program.__file__, topic, name, lake.root, format, step]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONPATH": path}, timeout=RUN_TIMEOUT_S
    )
    assert done.returncode == -signal.SIGKILL, (step, done.stdout, done.stderr[-4000:])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("format", FORMATS)
def test_a_killed_rename_is_finished_by_the_same_command(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    end = 0
    for number, step in enumerate(STEPS[format]):
        topics.write(topic, [(b"k", b'{"id": 1}', TIME_MS, ()), (b"k", b"{", TIME_MS, ())])
        lake.sync(topic, format=format, **JSON)
        end += 2
        name = f"name{number}"
        kill(lake, topic, name, format, step)
        if step not in DONE:
            with pytest.raises(TableRenamed, match=f"flintmq lake rename {topic} {name}"):
                lake.sync(topic, format=format, **JSON)
        run("lake", "rename", topic, name, "--to", lake.root, "--format", format)
        lake.sync(topic, format=format, **JSON)
        rows, bad = lake.rows(name, format), lake.rows(f"{name}__quarantine", format)
        assert sorted(row["offset"] for row in (*rows, *bad)) == list(range(end)), step
        (found,) = audit(
            lake.spark, make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)
        )
        assert found.is_good, (step, found.problems)
