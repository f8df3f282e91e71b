"""A Spark query from topic to topic and a pipeline, killed in the middle of a batch.

    make_query("spark")              its rows are committed, or decided by the ledger, and Spark does not know
    make_pipeline("pipeline")        the same of the rows of a topic and of the files of a table

The archives hold the broker's data directory and the checkpoint, which do not depend on addresses or directories.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from flintmq.testing import Broker
from support.broker.broker_process import BrokerProcess
from support.pipeline import pipeline_program
from support.pipeline.pipelines import as_records
from support.spark import copying_program
from support.spark.spark_topics import Topics
from support.upgrade.archives import pack, write_expected

ROWS = 60
"""Copied by the query before it is started for the second time, and left to copy."""
SOURCE, TARGET = "in", "out"
COUNT = 60
FIRST = 30
"""Rows of the pipeline that are done when it is killed."""
_PATIENCE_S = 240.0

PIPELINE = """\
name: orders
sources:
  orders:
    topic: orders
    decode: {format: json, schema: "id long, amount long, at timestamp"}
    watermark: {column: at, delay: 1 second}
    max_records: 40
steps:
  good:
    sql: select * from orders
    expect: {positive: {that: amount >= 0, otherwise: dead-letter}}
  per_minute:
    sql: >
      select window.start as minute, count(*) as n, sum(amount) as total
      from good group by window(at, '1 minute')
sinks:
  rows: {from: good, topic: orders.rows, key: id}
  table: {from: good, table: lake/rows, format: delta}
  windows: {from: per_minute, topic: orders.windows}
dead_letters: orders.dead
"""


def rows() -> list[Any]:
    """A record a second; each seventh cannot be decoded, each fifth of the others fails an expectation."""
    found: list[Any] = []
    for number in range(COUNT):
        at = f"2023-11-14T10:{number * 2 // 60:02d}:{number * 2 % 60:02d}Z"
        amount = -1 if number % 5 == 0 else number
        found.append(b"bad %d" % number if number % 7 == 0 else {"id": number, "amount": amount, "at": at})
    # Completes the windows before it.
    found.append({"id": 1000, "amount": 1000, "at": "2023-11-14T12:00:00Z"})
    return found


def write_pipeline(directory: Path, address: str) -> Path:
    file = directory / "pipeline.yaml"
    file.write_text(f"{PIPELINE}bootstrap_servers: {address}\n")
    return file


def make_query(name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        settings = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
        with Broker(settings, data_dir=directory / "data") as broker:
            for topic in (SOURCE, TARGET):
                broker.create_topic(topic, 2, {"retention.ms": -1})
            _produce(broker, 0)
            copying = _start(copying_program, broker.bootstrap_servers, SOURCE, TARGET, made)
            assert copying.wait(_PATIENCE_S) == 0
            _produce(broker, ROWS)
            held = broker.faults.drop("EndTxn", when="after", times=None)
            copying = _start(copying_program, broker.bootstrap_servers, SOURCE, TARGET, made)
            try:
                held.wait(timeout_s=_PATIENCE_S)
            finally:
                _kill_session(copying)
            _wait_for_markers(broker)
            stopped_ms = time.time_ns() // 1_000_000
        pack(name, directory, "data", "checkpoint")
    write_expected(name, {"stopped_ms": stopped_ms})


def _wait_for_markers(broker: Broker) -> None:
    """Until all rows of an ended transaction are committed, and not only the decision."""
    deadline = time.monotonic() + _PATIENCE_S
    while any(state.startswith("Prepare") for state in broker.transactions().values()):
        assert time.monotonic() < deadline


def _produce(broker: Broker, first: int) -> None:
    for number in range(first, first + ROWS):
        broker.produce(SOURCE, f"v{number}", key=f"k{number}", partition=number % 2)


def make_pipeline(name: str) -> None:
    settings = ("offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3")
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        args = [word for one in settings for word in ("--set", one)]
        with BrokerProcess(directory / "data", args) as broker:
            with Topics(broker.address) as topics:
                topics.create("orders", partitions=2)
                for topic in ("orders.rows", "orders.windows", "orders.dead"):
                    topics.create(topic)
            file = write_pipeline(directory, broker.address)
            _write_orders(broker.address, rows()[:FIRST])
            finished = _start(pipeline_program, str(file))
            assert finished.wait(_PATIENCE_S) == 0
            _write_orders(broker.address, rows()[FIRST:])
            for point in ("files of a table committed", "rows of a topic committed"):
                killed = _start(pipeline_program, str(file), point, "1")
                assert killed.wait(_PATIENCE_S) == -signal.SIGKILL
                _kill_session(killed)
        stopped_ms = time.time_ns() // 1_000_000
        # As if the kill had come to all sinks at once, before Spark noted their batches.
        for sink in ("rows", "table"):
            for commit in (directory / ".flint" / "orders" / "sinks" / sink / "commits").glob("*1*"):
                commit.unlink()
        # They tell of a process and its host.
        for about in ("status.json", "run.lock"):
            (directory / ".flint" / "orders" / about).unlink()
        pack(name, directory, "data", ".flint", "lake")
    write_expected(name, {"stopped_ms": stopped_ms})


def _write_orders(address: str, records: list[Any]) -> None:
    with Topics(address) as topics:
        for partition in range(2):
            topics.write("orders", as_records(records[partition::2]), partition=partition)


def _start(program: Any, *arguments: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, program.__file__, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def _kill_session(program: subprocess.Popen[bytes]) -> None:
    """As a machine that goes down: the driver, Java, and the workers, which have a process group of their own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == program.pid:
            with suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
    program.wait()
