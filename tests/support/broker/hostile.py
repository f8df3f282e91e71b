"""A healthy client beside an attack, in another process, and what the broker's process looks like meanwhile.

    with watched(broker):
        ...attack it...

The healthy client asks for metadata, writes a record and reads it back, over and over, on one connection. When the
attack is over it reads everything again and `watched` asserts: no error, nothing acknowledged lost, the worst
request under a second, the broker's own memory up by no more than 256 MiB at any time, the broker alive, and no
socket left behind.

A second is counted in time that the broker could have used: what the kernel says that the broker's loop thread
or the client spent waiting for a core (`/proc/…/schedstat`) is taken off, so that a busy machine fails no test.
The attacker is another process, and its work is not the broker's either.

One process is the healthy client of all attacks, one after the other: to start it takes longer than most of them.
After a failure the next attack has a new one.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from select import select

import pytest

from support.broker.broker_process import BrokerProcess, clean_environment
from support.wire.wire import Wire, batch_of, fetch_request, values_of

WORST_MS = 1000.0
MEMORY_MAX_KIB = 256 * 1024
READY = "ready"
_WARM_ROUNDS = 30
_PAUSE_S = 0.002
_SETTLE_S = 20.0
_REPORT_S = 60.0
_READ_BYTES = 8 << 20
_numbers = count()

needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="toolchain: Linux's /proc, to watch a broker's memory"
)


@dataclass
class Report:
    """What the healthy client saw, in milliseconds and KiB."""

    rounds: int = 0
    worst_ms: float = 0.0
    worst: str = ""
    error: str = ""
    lost: str = ""
    memory_before: int = 0
    memory_peak: int = 0
    sockets_before: int = 0
    sockets_after: int = 0
    worst_raw_ms: float = field(default=0.0)
    """With the time in which the machine gave no core."""

    @property
    def memory_rise(self) -> int:
        return self.memory_peak - self.memory_before

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, worst {self.worst_ms:.0f} ms ({self.worst}, {self.worst_raw_ms:.0f} ms "
            f"by the clock), memory +{self.memory_rise / 1024:.0f} MiB, sockets {self.sockets_before} to "
            f"{self.sockets_after}"
        )


@contextmanager
def watched(
    broker: BrokerProcess, *, worst_ms: float = WORST_MS, memory_max_kib: int = MEMORY_MAX_KIB
) -> Iterator[None]:
    """Around an attack: fails the test if the healthy client or the broker suffered from it."""
    client = _WATCHER.begin(broker)
    try:
        yield
        report = client.end(broker)
    except BaseException:
        client.close()
        raise
    print(f"healthy client: {report}")
    assert not report.error, f"{report.error}\n{broker.errors}"
    assert not report.lost, report.lost
    assert report.rounds > _WARM_ROUNDS
    assert report.worst_ms < worst_ms, report
    assert report.memory_rise <= memory_max_kib, report
    assert report.sockets_after <= report.sockets_before, report
    assert broker.is_running, broker.errors


class _Watcher:
    """The healthy client's process, which lives until something fails or the tests end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def begin(self, broker: BrokerProcess) -> _Watcher:
        """Return when the client is at work."""
        if self._process is None:
            self._process = _start_watcher()
        try:
            line = self._ask(f"{broker.address} {broker.pid} healthy-{next(_numbers)}")
            assert line == READY, f"the healthy client did not start: {line!r}\n{broker.errors}"
        except BaseException:
            self.close()
            raise
        return self

    def end(self, broker: BrokerProcess) -> Report:
        line = self._ask("")
        assert line, f"the healthy client hangs or has ended\n{broker.errors}"
        report = Report(**json.loads(line))
        if report.error:
            self.close()  # it ended before it was asked to, and took the question for the next attack
        return report

    def _ask(self, line: str) -> str:
        """Return its response, nothing if there is none in time."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        if not select([self._process.stdout], [], [], _REPORT_S)[0]:
            return ""
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # Closes its pipes, too.
            process.communicate()


def _start_watcher() -> subprocess.Popen[str]:
    folder = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "support.broker.hostile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment({"PYTHONPATH": os.pathsep.join([str(folder), str(folder.parent)])}),
    )


_WATCHER = _Watcher()
atexit.register(_WATCHER.close)


# ---- the other process


class HealthyClient:
    def __init__(self, address: str, pid: int, topic: str) -> None:
        self._pid = pid
        self._topic = topic
        self._written = 0
        self.report = Report()
        self._wire = Wire(address)
        self._wire.create_topic(topic)

    def run(self) -> Report:
        report = self.report
        try:
            for _ in range(_WARM_ROUNDS):
                self._round()
            report.worst_ms = report.worst_raw_ms = 0.0
            report.memory_before = report.memory_peak = memory_kib(self._pid)
            report.sockets_before = sockets(self._pid)
            print(READY, flush=True)
            while not select([sys.stdin], [], [], _PAUSE_S)[0]:
                self._round()
            sys.stdin.readline()
            self._settle()
            self._read_again()
        except Exception as error:
            report.error = f"{type(error).__name__}: {error}"
        finally:
            self._wire.sock.close()
        return report

    def _round(self) -> None:
        report = self.report
        with self._timed("Metadata"):
            found = self._wire.metadata(self._topic)
        assert [topic.error_code for topic in found.topics] == [0]
        with self._timed("Produce"):
            answer = self._wire.produce(self._topic, batch_of(b"%d" % self._written))
        assert (answer.error_code, answer.base_offset) == (0, self._written), answer
        with self._timed("Fetch"):
            fetched = self._wire.fetch(fetch_request(self._topic, {0: self._written}, max_wait_ms=500))
        assert values_of(fetched) == {0: [b"%d" % self._written]}
        self._written += 1
        report.rounds += 1
        report.memory_peak = max(report.memory_peak, memory_kib(self._pid))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began, starved = time.monotonic(), self._starved_s()
        yield
        took_ms = (time.monotonic() - began) * 1000
        fair_ms = took_ms - (self._starved_s() - starved) * 1000
        report = self.report
        if fair_ms > report.worst_ms:
            report.worst_ms, report.worst, report.worst_raw_ms = fair_ms, what, took_ms

    def _starved_s(self) -> float:
        """For how long the broker's loop thread or this process was ready to run but had no core."""
        waited = [
            Path(f"/proc/{name}/schedstat").read_text().split()[1]
            for name in (f"{self._pid}/task/{self._pid}", "self")
        ]
        return sum(map(int, waited)) / 1e9

    def _settle(self) -> None:
        """Until the attacker's sockets are gone from the broker, or too long for that."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            self._round()
            self.report.sockets_after = sockets(self._pid)
            if self.report.sockets_after <= self.report.sockets_before or time.monotonic() > deadline:
                return

    def _read_again(self) -> None:
        offset = 0
        while offset < self._written:
            found = self._wire.fetch(
                fetch_request(
                    self._topic, {0: offset}, max_bytes=_READ_BYTES, partition_max_bytes=_READ_BYTES
                )
            )
            for value in values_of(found)[0]:
                if value != b"%d" % offset:
                    self.report.lost = f"offset {offset} holds {value!r}"
                    return
                offset += 1


def memory_kib(pid: int) -> int:
    """A process's own memory: what is not of files."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def sockets(pid: int) -> int:
    found = 0
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            found += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


if __name__ == "__main__":
    for asked in iter(sys.stdin.readline, ""):
        address, pid, topic = asked.split()
        print(json.dumps(asdict(HealthyClient(address, int(pid), topic).run())), flush=True)
