"""A real driver, or its workers, killed with `kill -9` in the middle of a streaming write: every row once.

The broker is in this process, and holds back an answer: whoever waits for it is at a known step when it is killed.
What happens at the steps between is in `test_spark_sink_steps`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flintmq.arrow.write.options import LEDGER_TOPIC
from flintmq.testing import Broker
from support.spark import copying_program

ROWS = 120
START_TIMEOUT_S = 240.0
RUN_TIMEOUT_S = 240.0


class Program:
    """Copies `in` to `out`; killed with everything that it has started."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._errors = folder / "stderr"
        command = [
            sys.executable,
            copying_program.__file__,
            broker.bootstrap_servers,
            "in",
            "out",
            str(folder),
        ]
        path = os.pathsep.join(one for one in sys.path if one)
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stderr=errors, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )

    def kill(self) -> None:
        """As a machine that goes down: driver, JVM and workers, which have a process group of their own."""
        for pid, _, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> None:
        assert self.process.wait(RUN_TIMEOUT_S) == 0, self._errors.read_text()[-4000:]

    def workers(self) -> list[int]:
        """The processes in which tasks run: forks of a daemon, which was started by the same command."""
        running = {
            pid: parent for pid, parent, command in self._processes() if command.endswith("pyspark.worker ")
        }
        return [pid for pid, parent in running.items() if parent in running]

    def _processes(self) -> list[tuple[int, int, str]]:
        """Id, parent and command of all that runs in its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                _, parent, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if int(session) == self.process.pid:
                found.append((int(entry.name), int(parent), command))
        return found


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        started.create_topic("in", 2)
        started.create_topic("out", 3)
        for number in range(ROWS):
            started.produce("in", f"v{number}", key=f"k{number}", partition=number % 2)
        yield started


def copied(broker: Broker) -> Counter[bytes | None]:
    return Counter(record.value for record in broker.records("out", read_committed=True))


EVERY_ROW_ONCE = Counter(f"v{number}".encode() for number in range(ROWS))

# Spark is started twice by each of them.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("api", "topic", "when"),
    [
        pytest.param("EndTxn", None, "before", id="decided-and-nothing-ended"),
        pytest.param("Produce", "out", "after", id="tasks-are-writing"),
        pytest.param("Produce", LEDGER_TOPIC, "before", id="not-decided-yet"),
        pytest.param("Produce", LEDGER_TOPIC, "after", id="decided"),
        pytest.param("EndTxn", None, "after", id="ended"),
    ],
)
def test_a_driver_killed_at_a_step_is_made_up_for_by_the_next(
    broker: Broker, tmp_path: Path, api: str, topic: str | None, when: str
) -> None:
    held = broker.faults.drop(api, topic=topic, when="before" if when == "before" else "after", times=None)
    first = Program(broker, tmp_path)
    try:
        held.wait(timeout_s=START_TIMEOUT_S)
    finally:
        first.kill()
    held.clear()
    Program(broker, tmp_path).finish()
    assert copied(broker) == EVERY_ROW_ONCE
    assert "Ongoing" not in broker.transactions().values()


def test_killed_workers_are_made_up_for_by_other_attempts(broker: Broker, tmp_path: Path) -> None:
    held = broker.faults.drop("Produce", topic="out", when="after", times=1)
    program = Program(broker, tmp_path)
    try:
        held.wait(timeout_s=START_TIMEOUT_S)
        workers = program.workers()
        assert workers
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        program.finish()
    finally:
        program.kill()
    assert copied(broker) == EVERY_ROW_ONCE
    assert "Ongoing" not in broker.transactions().values()
