"""Signals for a run and for all of its processes: it ends in order, and no Java is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess
from support.pipeline.pipelines import as_records, records_of
from support.spark.spark_session import QUICK_JAVA
from support.spark.spark_topics import Topics

pytestmark = pytest.mark.timeout(450)

_PATIENCE_S = 200.0
_MARK = "FLINTMQ_TEST_RUN"


_POLL_S = 0.2


def _processes(mark: str) -> dict[int, str]:
    """Of a run, by their environment: what they are called."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:
            continue
    return found


class _Run:
    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self.mark = uuid.uuid4().hex
        self.file = folder / "p.yaml"
        self.file.write_text(
            f"name: p\nbootstrap_servers: {address}\n"
            f'sources: {{a: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}}}\n'
            f"sinks: {{z: {{from: a, topic: {topic}.out}}}}\n"
            "spark: {spark.driver.memory: 1g, spark.sql.shuffle.partitions: 2, "
            f"spark.driver.extraJavaOptions: {QUICK_JAVA}}}\n"
        )
        self.told = folder / "told"
        self.process: subprocess.Popen[str]

    @contextmanager
    def started(self) -> Iterator[None]:
        with self.told.open("w") as told:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "flintmq",
                    "pipeline",
                    "run",
                    str(self.file),
                    "--master",
                    "local[2,4]",
                ],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    _MARK: self.mark,
                },
                stdout=told,
                stderr=told,
                text=True,
                start_new_session=True,
            )
        try:
            yield
        finally:
            for pid in _processes(self.mark):
                os.kill(pid, signal.SIGKILL)
            self.process.wait()

    @property
    def has_java(self) -> bool:
        return "java" in _processes(self.mark).values()

    @property
    def state(self) -> str:
        status = self.file.parent / ".flint" / "p" / "status.json"
        return str(json.loads(status.read_text())["state"]) if status.exists() else ""

    @property
    def output(self) -> str:
        return self.told.read_text()

    def wait_for(self, what: str, found: Callable[[], object]) -> None:
        """Wait while the run goes on; what it has said so far explains why something does not come."""
        deadline = time.monotonic() + _PATIENCE_S
        while not found():
            assert self.process.poll() is None, f"ended without {what}\n{self.output}"
            assert time.monotonic() < deadline, f"no {what}, state {self.state!r}\n{self.output}"
            time.sleep(_POLL_S)

    def signal_all(self, number: int) -> None:
        """As a terminal does it: the whole group."""
        os.killpg(self.process.pid, number)

    def ended(self) -> int:
        code = self.process.wait(_PATIENCE_S)
        told = self.output
        assert "Traceback" not in told, told
        assert "Exception" not in told, told
        assert not self.has_java, told
        # Workers notice that their Java is gone in a moment.
        deadline = time.monotonic() + _PATIENCE_S
        while _processes(self.mark):
            assert time.monotonic() < deadline, f"processes are left\n{told}"
            time.sleep(_POLL_S)
        return code


@pytest.fixture
def run(tmp_path: Path, broker: BrokerProcess, topics: Topics, topic: str) -> _Run:
    for name in ("pyspark", "pyarrow", "obstore"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    topics.create(topic)
    topics.write(topic, as_records([{"id": 1}]))
    return _Run(tmp_path, broker.address, topic)


@pytest.mark.parametrize(
    ("number", "times"),
    [
        pytest.param(signal.SIGINT, 1, id="SIGINT"),
        pytest.param(signal.SIGTERM, 2, id="SIGTERM twice"),
        pytest.param(signal.SIGINT, 2, id="SIGINT twice", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 1, id="SIGTERM", marks=pytest.mark.long),
    ],
)
def test_a_signal_while_spark_starts_leaves_no_java_behind(run: _Run, number: int, times: int) -> None:
    with run.started():
        run.wait_for("Java", lambda: run.has_java)
        run.signal_all(number)
        if times == 2:
            run.wait_for("that it is stopping", lambda: "a second signal ends it at once" in run.output)
            run.signal_all(number)
        code = run.ended()
    assert code == (0 if times == 1 else 1 if number == signal.SIGINT else 128 + number)


def test_a_signal_for_all_processes_stops_a_run_in_order(
    run: _Run, broker: BrokerProcess, topic: str
) -> None:
    with run.started():
        run.wait_for("rows", lambda: records_of(broker.address, f"{topic}.out"))
        run.signal_all(signal.SIGTERM)
        assert run.ended() == 0
    assert run.state == "stopped"


@pytest.mark.parametrize(
    "is_asked", [pytest.param(True, id="asked", marks=pytest.mark.long), pytest.param(False, id="alone")]
)
def test_java_that_is_ended_by_somebody_else_is_no_traceback(
    run: _Run, broker: BrokerProcess, topic: str, is_asked: bool
) -> None:
    with run.started():
        run.wait_for("rows", lambda: records_of(broker.address, f"{topic}.out"))
        java = next(pid for pid, name in _processes(run.mark).items() if name == "java")
        if is_asked:
            run.signal_all(signal.SIGTERM)
        os.kill(java, signal.SIGKILL)
        code = run.ended()
    if is_asked:
        assert (code, run.state) == (0, "stopped")
    else:
        assert (code, run.state) == (1, "failed")
        assert "Spark's Java process has ended" in run.output
