"""A pipeline that runs: seen and stopped from another terminal, one at a time, exact when it goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import flintmq.pipeline
from flintmq.cli.pipeline.progress_view import ProgressView
from flintmq.cli.pipeline.status import command as status
from flintmq.cli.pipeline.stop import command as stop
from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.groups import committed_offsets
from flintmq.client.cluster import ClusterClient
from flintmq.pipeline.runtime.control import AlreadyRunning, Control, read_status, request_stop
from flintmq.pipeline.runtime.metrics import METRICS, metrics_text
from flintmq.pipeline.runtime.progress import RunProgress, SinkProgress
from support.broker.broker_process import BrokerProcess
from support.pipeline.pipelines import Flow, as_records, records_of
from support.spark.spark_session import QUICK_JAVA
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_S = 200.0


def _wait(what: str, found: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.2)


def test_a_run_is_seen_and_stopped_from_another_terminal(flow: Flow, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, as_records([{"id": n} for n in range(10)]))
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
        sinks:
          out: {{from: orders, topic: {topic}.out}}
        trigger: {{every: 500ms}}
        spark:
          spark.driver.memory: 1g
          spark.driver.extraJavaOptions: {QUICK_JAVA}
          spark.sql.shuffle.partitions: 2
        """
    )
    before = CliRunner().invoke(status, [str(flow.file)])
    assert (before.exit_code, before.output.strip()) == (1, f"{topic}: never run")
    command = [sys.executable, "-m", "flintmq", "pipeline", "run", str(flow.file)]
    paths = os.pathsep.join(path for path in sys.path if path)
    told = flow.folder / "told"
    with told.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--master", "local[2,4]", "--metrics-port", "0", "--json"],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        _wait(
            "rows", lambda: process.poll() is not None or len(records_of(flow.address, f"{topic}.out")) == 10
        )
        topics.write(topic, as_records([{"id": 10}]))
        _wait("more rows", lambda: process.poll() is not None or len(flow.out(f"{topic}.out")) == 11)
        shown = json.loads(CliRunner().invoke(status, [str(flow.file), "--json"]).output)[0]
        assert (shown["state"], shown["pid"], shown["sinks"]["out"]["lag"]) == ("running", process.pid, 0)
        address = re.search(r"figures at (http://\S+)", told.read_text())
        assert address is not None
        _wait(
            "figures", lambda: f'rows_total{{pipeline="{topic}",sink="out"}} 11\n' in _asked(str(address[1]))
        )
        with pytest.raises(AlreadyRunning, match=f"runs already as process {process.pid}"):
            flow.run()
        assert CliRunner().invoke(stop, [str(flow.file)]).exit_code == 0
        output, _ = process.communicate(timeout=_PATIENCE_S)
    finally:
        process.kill()
    errors = told.read_text()
    assert process.returncode == 0, errors
    assert json.loads(output)["stopped"] is True
    assert re.search(r"out: batch \d, rows 11, rows/s \d", errors), errors
    after = CliRunner().invoke(status, [str(flow.file)])
    assert after.output.startswith(f"{topic}: stopped")
    topics.write(topic, as_records([{"id": 11}]))
    flow.run()
    assert sorted(row["id"] for row in flow.out(f"{topic}.out")) == list(range(12))
    with ClusterClient(parse_addresses(flow.address)) as client:
        committed = committed_offsets(client, f"{topic}.orders", [(topic, 0)])
    assert committed[topic, 0].offset == 12


def _asked(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_outlives_its_broker(spark: SparkSession, tmp_path: Path, topic: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.port
        flow = Flow(spark, broker.address, tmp_path)
        rows = [{"id": n} for n in range(300)]
        with Topics(broker.address) as topics:
            topics.create(topic)
            topics.write(topic, as_records([*rows[:100], b"bad"]))
        flow.write(
            f"""
            name: {topic}
            sources:
              orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}, max_records: 50}}
            sinks:
              out: {{from: orders, topic: {topic}.out}}
            dead_letters: {topic}.dead
            """
        )
        wanted = threading.Event()
        pipeline = flintmq.pipeline.load(str(flow.file))
        failures: list[BaseException] = []

        def carry_out() -> None:
            try:
                flintmq.pipeline.run(flow.spark, pipeline, stop=wanted)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=carry_out)
        thread.start()
        _wait("the first rows", lambda: failures or len(records_of(flow.address, f"{topic}.out")) >= 50)
        broker.kill()
        broker.args = ["--port", str(port)]
        broker.start()
        with Topics(broker.address) as topics:
            topics.write(topic, as_records([*rows[100:], b"worse"]))
        _wait("all rows", lambda: failures or len(records_of(flow.address, f"{topic}.out")) >= 300)
        _wait("all letters", lambda: failures or len(records_of(flow.address, f"{topic}.dead")) >= 2)
        wanted.set()
        thread.join(_PATIENCE_S)
        assert failures == []
        assert sorted(row["id"] for row in flow.out(f"{topic}.out")) == list(range(300))
        assert [one.value for one in records_of(flow.address, f"{topic}.dead")] == [b"bad", b"worse"]


def test_a_status_outlives_its_process_and_says_so(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    with Control(folder, "orders") as control:
        control.report("running", {"dead_letters": 0, "sinks": {}})
        told = read_status(folder)
        assert told is not None
        assert told["state"] == "running"
        with pytest.raises(AlreadyRunning), Control(folder, "orders"):
            raise AssertionError("two at a time")
        assert not request_stop(folder, timeout_s=0)
        assert control.is_stop_wanted
    told = read_status(folder)
    assert told is not None
    assert told["state"] == "died"
    with Control(folder, "orders") as control:
        assert not control.is_stop_wanted
    assert request_stop(folder, timeout_s=0)


_PROGRESS = {
    "batchId": 3,
    "numInputRows": 500,
    "durationMs": {"addBatch": 900, "triggerExecution": 1000},
    "stateOperators": [{"numRowsTotal": 7}, {"numRowsTotal": 5}],
    "sources": [
        {"latestOffset": {"t": {"0": 100, "1": 40}}, "endOffset": {"t": {"0": 90, "1": 40}}},
        {"latestOffset": 7, "endOffset": 7},
    ],
    "observedMetrics": {"expect:big": {"positive": 4}, "another": {"n": 1}},
}


def test_figures_count_each_batch_once() -> None:
    figures = SinkProgress()
    assert figures.take(_PROGRESS)
    assert not figures.take(_PROGRESS)
    assert (figures.rows, figures.batches, figures.rows_per_second) == (500, 1, 500.0)
    assert (figures.lag, figures.state_rows, figures.failed) == (10, 12, {"big.positive": 4})
    idle = {**_PROGRESS, "batchId": 4, "numInputRows": 0, "durationMs": {"triggerExecution": 3}}
    assert not figures.take(idle)
    assert figures.batch == 3


def test_figures_are_there_for_prometheus_and_for_plain_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    sink = SinkProgress()
    sink.take(_PROGRESS)
    figures = RunProgress({"out": sink}, dead_letters=2, dropped={"orders": 1})
    text = metrics_text("shop", figures)
    assert 'flintmq_pipeline_rows_total{pipeline="shop",sink="out"} 500\n' in text
    assert 'expectation="big.positive"} 4\n' in text
    assert all(f"# TYPE {metric.name} " in text for metric in METRICS)
    with ProgressView("shop", is_terminal=False) as screen:
        screen.show("running", figures)
        screen.show("running", figures)
    assert capsys.readouterr().err == (
        "shop: running\nout: batch 3, rows 500, rows/s 500, lag 10, batch ms 1,000, state rows 12, failed 4\n"
    )
    with ProgressView("shop", is_terminal=True) as screen:
        screen.show("running", figures)
    drawn = capsys.readouterr().err
    assert "shop: running, 2 dead letters" in drawn
    assert "batch ms" in drawn
