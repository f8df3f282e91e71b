"""A real broker in a process of its own, on a free port and in a folder of its own.

    with BrokerProcess(tmp_path / "data") as broker:
        connect(broker.address)

Invariant: when `close` returns, the process is gone. What it writes to standard error is kept in a file
beside its folder, for whoever wants to know why a test failed.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_ERROR_TAIL_BYTES = 8 * 1024

# A test's broker is configured by the test alone, whatever the developer's shell has set.
_ENVIRONMENT_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")

FLINTMQ = "flintmq"


class BrokerFailed(AssertionError):
    """The broker did not start or did not stop as it should; the message ends with what it said."""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing of the shell's environment that FlintMQ would read, and what the test adds."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def _compiled_core(program: str) -> dict[str, str]:
    """What makes a broker run the compiled core, if there is one; another program than FlintMQ's replaces parts."""
    directory = os.environ.get("FLINT_TEST_COMPILED") or os.environ.get("FLINTMQ_COMPILED")
    return {"FLINTMQ_COMPILED": directory} if directory and program == FLINTMQ else {}


class BrokerProcess:
    def __init__(
        self,
        data_dir: Path | str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        program: str = FLINTMQ,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.args = list(args)
        self.program = program
        """The module that is run; another than FlintMQ's own must take its arguments."""
        self.env = dict(env or {})
        self.addresses: list[str] = []
        """Every `host:port` of the ready line."""
        self.ready_line = ""
        self.error_log = self.data_dir.with_name(self.data_dir.name + ".stderr")
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """The first `host:port`, for a client's bootstrap servers."""
        return self.addresses[0]

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def errors(self) -> str:
        """The end of its standard error."""
        if not self.error_log.exists():
            return ""
        return self.error_log.read_bytes()[-_ERROR_TAIL_BYTES:].decode(errors="replace")

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> BrokerProcess:
        """Returns once clients may connect. A stopped broker may be started again, in the same folder.

        With port 0, unless `args` say otherwise.
        """
        assert not self.is_running, "the broker runs already"
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        own = [] if _names_an_address(self.args) else ["--port", "0"]
        command = [
            sys.executable,
            "-m",
            self.program,
            "serve",
            "--data-dir",
            str(self.data_dir),
            *own,
            *self.args,
        ]
        with self.error_log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=clean_environment({**_compiled_core(self.program), **self.env}),
            )
        # A thread of its own reads on to the end, so that the broker never waits for a full pipe.
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read_lines, args=(self._process, lines), daemon=True).start()
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.close()
                raise BrokerFailed(f"not ready within {timeout_s} s:\n{self.errors}") from None
            if line is None:
                code = self.wait()
                raise BrokerFailed(f"ended with code {code} before it was ready:\n{self.errors}")
            if line.startswith("ready "):
                self.ready_line = line.rstrip()
                self.addresses = [word for word in line.split() if _is_address(word)]
                return self

    def wait(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code, once it has ended by itself."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise BrokerFailed(f"still running after {timeout_s} s:\n{self.errors}") from None

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask it to stop, as an operator would; the exit code."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s=timeout_s)

    def kill(self) -> None:
        """As a crash would: nothing is flushed, nothing is promised."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.is_running:
            self.kill()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()
        elif self.is_running and (code := self.stop()) != 0:
            raise BrokerFailed(f"ended with code {code}:\n{self.errors}")


class StartBroker(Protocol):
    """The fixture `start_broker`: a running broker with these arguments of `flintmq serve`."""

    def __call__(
        self, *args: str, env: Mapping[str, str] | None = None, data_dir: Path | None = None
    ) -> BrokerProcess: ...


def _names_an_address(args: Sequence[str]) -> bool:
    return any(arg.startswith(("--port", "listeners=", "broker_ports=")) for arg in args)


def _is_address(word: str) -> bool:
    host, colon, port = word.rpartition(":")
    return bool(host and colon and port.isdecimal())


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def closed_port() -> int:
    """Return a port where nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
