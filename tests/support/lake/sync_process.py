"""`flintmq lake …` in a process of its own: what it says line by line, and how it ended.

    with LakeProcess(["sync", "orders", "--to", str(root), "-b", address, "--continuous"], log) as sync:
        sync.line()                 the next line of its output, when it comes
        sync.terminate()
        sync.wait()                 it must end well

Invariant: when the context ends, the process and its Java are gone. Standard error is in `log`.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

START_TIMEOUT_S = 120.0
"""Also for what takes a moment once it runs: a busy machine starts many Javas."""


class LakeProcess:
    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        lines: queue.Queue[str | None] | None = None,
    ) -> None:
        """`lines` is where its output goes line by line, and None at the end; several may share it."""
        self.log = log
        command = [sys.executable, "-m", "flintmq", "lake", *arguments, "--master", "local[1]"]
        path = os.pathsep.join(one for one in sys.path if one)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **(environment or {})},
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue() if lines is None else lines
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> LakeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reading.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def errors(self) -> str:
        return self.log.read_text(errors="replace")

    def line(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """The next one; it is an error if there is none in that time, or no more."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"nothing was said in {timeout_s} s: {self.errors[-4000:]}") from None
        assert line is not None, f"it has ended: {self.errors[-4000:]}"
        return line

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self, code: int = 0) -> None:
        assert self._process.wait(START_TIMEOUT_S) == code, self.errors[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
