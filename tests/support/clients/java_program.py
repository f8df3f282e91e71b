"""A Java program with Kafka's own jars on its class path, in a process of its own.

    compile_java(folder, ["WordCount"], jars=["kafka-streams"])
    program = JavaProgram("WordCount", [address], folder, jars=["kafka-streams"])
    program.start()
    program.expect_line("running")

Needs a JDK and the jars that `bench/pom.xml` names, from `$KAFKA_LIBS` or the suites' cache; without them the test
that asks for one is skipped. Invariant: when `close` returns, the process is gone. What it writes to standard error
is kept in a file.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.peers import KAFKA_VERSION, kafka_libs

SOURCES = Path(__file__).resolve().parents[2] / "clients" / "java"
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_LINE_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_ERROR_TAIL_BYTES = 8 * 1024


def compile_java(folder: Path, sources: Sequence[str], *, jars: Sequence[str] = ()) -> None:
    """Once for all starts of a program: compiling takes longer than starting."""
    names = [str(SOURCES / f"{name}.java") for name in sources]
    built = subprocess.run(
        [_tool("javac"), "-d", str(folder), "-cp", _jars(*jars), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr


def java_command(name: str, arguments: Sequence[str], folder: Path, *, jars: Sequence[str] = ()) -> list[str]:
    """The command that runs a program once, with the classes in `folder` and all of Kafka's jars."""
    class_path = os.pathsep.join((str(folder), _jars(*jars)))
    return [_tool("java"), *_OPTIONS, "-cp", class_path, name, *arguments]


class JavaProgram:
    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, *, jars: Sequence[str] = ()
    ) -> None:
        """With the classes in `folder` and all of Kafka's jars, of which it needs `jars`."""
        self._command = java_command(name, arguments, folder, jars=jars)
        self._error_log = folder / f"{name}.stderr"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    @property
    def errors(self) -> str:
        return self._error_log.read_bytes()[-_ERROR_TAIL_BYTES:].decode(errors="replace")

    def start(self) -> None:
        assert self._process is None or self._process.poll() is not None
        self._lines = queue.SimpleQueue()
        with self._error_log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        threading.Thread(target=_read_lines, args=(self._process, self._lines), daemon=True).start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def expect_line(self, wanted: str) -> None:
        """The next line that it writes."""
        try:
            line = self._lines.get(timeout=_LINE_TIMEOUT_S)
        except queue.Empty:
            line = f"nothing within {_LINE_TIMEOUT_S} s"
        assert line == wanted, f"it said {line!r}:\n{self.errors}"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end, as an operator would; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_STOP_TIMEOUT_S)

    def end_input(self) -> int:
        """The exit code of a program that ends with its input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(_STOP_TIMEOUT_S)

    def close(self) -> None:
        if self.is_running:
            self.kill()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"toolchain: {name} is not installed")
    return found


def _jars(*needed: str) -> str:
    libs = kafka_libs()
    names = [f"{name}-{KAFKA_VERSION}.jar" for name in ("kafka-clients", *needed)]
    missing = [name for name in names if not os.path.exists(os.path.join(libs, name))]
    if missing:
        pytest.skip(f"toolchain: not among Kafka's jars (KAFKA_LIBS): {', '.join(missing)}")
    return os.path.join(libs, "*")


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
    lines.put(None)
