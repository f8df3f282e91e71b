"""A broker in a process of its own, pinned to its core, and what it has cost so far.

Invariant: whoever starts a broker ends it: when `close` returns, the process is gone and so is its folder.
A broker counts as started when it answers Metadata with at least one node.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from types import TracebackType
from typing import Final

from bench import machine
from bench.figures import Cost
from bench.machine import Cores
from bench.peers import BrokerHome, Peer
from bench.tls import TlsFiles
from bench.wire import Connection
from flintmq.errors import ProtocolError
from flintmq.protocol.messages import MetadataRequest, MetadataResponse

START_TIMEOUT_S: Final = 180.0
METADATA_VERSION: Final = 8

_POLL_S: Final = 0.002
_LOG_TAIL_BYTES: Final = 2000


class BrokerFailed(Exception):
    """The broker ended, or never answered; the message ends with what it wrote."""


class Broker:
    def __init__(self, peer: Peer, folder: str, cores: Cores, tls: TlsFiles | None = None) -> None:
        self.peer = peer
        self.cores = cores
        self.home = BrokerHome(folder, *_free_ports(3), tls=tls)
        self._log = os.path.join(folder, "broker.log")
        self._process: subprocess.Popen[bytes] | None = None
        peer.prepare(self.home)

    @property
    def port(self) -> int:
        return self.home.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.home.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> float:
        """Seconds from the start of the process to its first answer to Metadata."""
        assert not self.is_running, "the broker runs already"
        began = time.monotonic()
        self._process = self._spawn()
        while not self._answers():
            if self._process.poll() is not None:
                raise BrokerFailed(
                    f"{self.peer.name} ended with code {self._process.returncode}:\n{self._said()}"
                )
            if time.monotonic() - began > START_TIMEOUT_S:
                self.kill()
                raise BrokerFailed(f"{self.peer.name} did not answer in {START_TIMEOUT_S} s:\n{self._said()}")
            time.sleep(_POLL_S)
        took = time.monotonic() - began
        with Connection(self.port) as connection:
            self.peer.configure(connection)
        return took

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.home.folder, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def cpu_s(self) -> float:
        return machine.cpu_s(self.pid)

    def anonymous_bytes(self) -> int:
        return machine.anonymous_bytes(self.pid)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # The child takes its core from this thread: so all its threads have it from the first on.
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores.broker)
        try:
            with open(self._log, "ab") as log:
                return subprocess.Popen(
                    self.peer.command(self.home),
                    env=self.peer.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        finally:
            os.sched_setaffinity(0, own)

    def _answers(self) -> bool:
        try:
            with Connection(self.port, timeout_s=5) as connection:
                answer = connection.call(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
                return len(answer.brokers) > 0
        except (OSError, ProtocolError):
            return False

    def _said(self) -> str:
        try:
            with open(self._log, "rb") as log:
                return log.read()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""


class Meter:
    """The cost of a `with` block: elapsed time, the broker's CPU, and how busy everybody else was."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.cost = Cost(0.0, 0.0)

    def __enter__(self) -> Meter:
        self._before = self._now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        wall, broker, client, everybody = (
            now - before for now, before in zip(self._now(), self._before, strict=True)
        )
        self.cost = Cost(wall, broker, max(0.0, everybody - broker - client), everybody)

    def _now(self) -> tuple[float, float, float, float]:
        times = os.times()
        client = times.user + times.system + times.children_user + times.children_system
        return time.monotonic(), self._broker.cpu_s(), client, machine.busy_s()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
