"""One of Spark's own servers in a process of its own: a master, a worker, a Connect server.

    with SparkDaemon([MASTER, "--port", "0"], ready=r"Starting Spark master at (spark://\\S+)") as master:
        master.found            what the pattern's group matched

Invariant: when the block ends, the process and everything that it started are gone. The end of what it said is kept,
for whoever wants to know why a test failed.
"""

from __future__ import annotations

import collections
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from flintmq.cli.spark.launch import spark_home
from flintmq.spark.session import LOOPBACK, environment

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_LINES_KEPT = 60


class SparkDaemon:
    def __init__(
        self, arguments: Sequence[str], *, ready: str, program: str = "spark-class", **variables: str
    ) -> None:
        self.found = ""
        self._command = [os.path.join(spark_home(), "bin", program), *arguments]
        self._ready = re.compile(ready)
        self._variables: Mapping[str, str] = variables
        self._tail: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> SparkDaemon:
        surroundings = {
            **os.environ,
            **environment(os.environ),
            "SPARK_HOME": spark_home(),
            "SPARK_LOCAL_IP": LOOPBACK,
            **self._variables,
        }
        # A group of its own, for a worker's executors are its children.
        self._process = subprocess.Popen(
            self._command,
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._process, lines), daemon=True).start()
        try:
            self._await_ready(lines)
        except BaseException:
            self.close()
            raise
        return self

    def _await_ready(self, lines: queue.SimpleQueue[str | None]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, "not ready:\n" + "".join(self._tail)
            if match := self._ready.search(line):
                self.found = match[1] if match.groups() else match[0]
                return

    def _read(self, process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
        """To the end, so that it never waits for a full pipe."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._tail.append(line)
                lines.put(line)
        lines.put(None)

    def close(self) -> None:
        assert self._process is not None
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(_STOP_TIMEOUT_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
