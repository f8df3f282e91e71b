"""Apache Kafka itself, on one node and free ports, to compare with.

Needs Java and Kafka's jars, from `$KAFKA_LIBS` or the suites' cache; without them the test that asks for it is
skipped. Invariant: when `close` returns, the process is gone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from bench.peers import KAFKA_CORE_JAR, BrokerHome, KafkaPeer, kafka_libs

START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_JAVA_OPTIONS = "-Xmx512m -XX:+UseSerialGC"


class KafkaBroker:
    def __init__(self, directory: Path) -> None:
        java, libs = shutil.which("java"), kafka_libs()
        if java is None or not os.path.exists(os.path.join(libs, KAFKA_CORE_JAR)):
            pytest.skip(
                "toolchain: Apache Kafka was not compared with, for want of java or its jars (KAFKA_LIBS)"
            )
        self._peer = KafkaPeer(java=java, libs=libs, java_options=_JAVA_OPTIONS)
        self._home = BrokerHome(str(directory), _free_port(), _free_port(), _free_port())
        self._log = directory.with_name(directory.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._home.port}"

    def __enter__(self) -> KafkaBroker:
        self._peer.prepare(self._home)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._peer.command(self._home), env=self._peer.environment(), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._home.port), 1).close()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    pytest.fail(f"Kafka did not start:\n{self._log.read_text()[-4000:]}")
                time.sleep(0.2)

    def close(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
