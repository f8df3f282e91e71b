"""A driver that is killed in the middle of a stream, again and again: every row once, each micro-batch by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker_process import BrokerProcess
from support.spark import streaming_program
from support.spark.spark_topics import Topics, numbered

PARTITIONS, RECORDS = 2, 1000


def run_until(line: str | None, broker: BrokerProcess, topic: str, folder: Path) -> list[str]:
    """Run the program; kill it and all it has started as soon as it says `line`. What it said."""
    command = [sys.executable, streaming_program.__file__, broker.address, topic, str(folder)]
    with (folder / "stderr").open("ab") as errors:
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    said = []
    assert program.stdout is not None
    with program.stdout as lines:
        for one in lines:
            said.append(one.strip())
            if one.strip() == line:
                os.killpg(program.pid, signal.SIGKILL)
    code = program.wait()
    assert line in said or (line is None and code == 0), (said, (folder / "stderr").read_text()[-4000:])
    return said


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_driver_loses_nothing_and_repeats_nothing(
    spark: Any, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(0, RECORDS, 100):
            topics.write(topic, numbered(first, 100), partition=partition)
    # In the first micro-batch, whose start no checkpoint knows; after one is written and before it is committed.
    run_until("begins 0", broker, topic, tmp_path)
    run_until("written 1", broker, topic, tmp_path)
    topics.write(topic, numbered(RECORDS, 10))
    run_until("begins 4", broker, topic, tmp_path)
    said = run_until(None, broker, topic, tmp_path)
    assert said[-1] == "done"
    rows = spark.read.parquet(str(tmp_path / "rows")).select("partition", "offset", "value").collect()
    expected = [(0, offset) for offset in range(RECORDS + 10)] + [(1, offset) for offset in range(RECORDS)]
    assert sorted((row["partition"], row["offset"]) for row in rows) == expected
    assert all(bytes(row["value"]) == b"v%d" % row["offset"] for row in rows)
