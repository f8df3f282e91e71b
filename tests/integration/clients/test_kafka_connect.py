"""Kafka Connect, standalone, from file to file through a topic (Z2, R7).

The worker is Kafka's own. Its source keeps its place in a file, its sink in a consumer group, so that after a restart
of the worker and of the broker each line is in the sink's file once, in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.java_program import JavaProgram

WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"
PATIENCE_S = 60.0
LOOK_S = 0.05
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def write_properties(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(
        "--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=500"
    )


@pytest.fixture
def worker(broker: BrokerProcess, tmp_path: Path) -> Iterator[JavaProgram]:
    folder = tmp_path / "connect"
    folder.mkdir()
    settings = write_properties(
        folder / "worker.properties",
        {
            "bootstrap.servers": broker.address,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 200,
            "listeners": "http://127.0.0.1:0",
            # Else it looks through every class of every jar.
            "plugin.discovery": "service_load",
        },
    )
    source = write_properties(
        folder / "source.properties",
        {
            "name": "source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": 1,
            "file": folder / "in.txt",
            "topic": "lines",
        },
    )
    sink = write_properties(
        folder / "sink.properties",
        {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": 1,
            "file": folder / "out.txt",
            "topics": "lines",
        },
    )
    program = JavaProgram(
        WORKER, [settings, source, sink], folder, jars=("kafka-tools", "connect-runtime", "connect-file")
    )
    yield program
    program.close()


def add_lines(folder: Path, start: int, count: int) -> None:
    with (folder / "in.txt").open("a") as file:
        file.writelines(f"line {number}\n" for number in range(start, start + count))


def wait_for_lines(program: JavaProgram, folder: Path, count: int) -> list[str]:
    """Those of the sink's file, once there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    out = folder / "out.txt"
    while True:
        lines = out.read_text().splitlines() if out.exists() else []
        if len(lines) >= count:
            return lines
        assert program.is_running, program.errors
        assert time.monotonic() < deadline, f"{len(lines)} of {count} lines came\n{program.errors}"
        time.sleep(LOOK_S)


@pytest.mark.timeout(240)
def test_a_file_goes_through_a_topic_to_a_file_and_restarts_repeat_and_lose_nothing(
    broker: BrokerProcess, worker: JavaProgram, tmp_path: Path
) -> None:
    folder = tmp_path / "connect"
    add_lines(folder, 0, 300)
    worker.start()
    wait_for_lines(worker, folder, 300)
    worker.stop()
    broker.args += ["--port", str(broker.port)]
    broker.kill()
    broker.start()
    add_lines(folder, 300, 200)
    worker.start()
    lines = wait_for_lines(worker, folder, 500)
    worker.stop()
    assert lines == [f"line {number}" for number in range(500)]
