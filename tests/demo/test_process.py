"""The demo as people run it: it ends by itself or on Ctrl-C, its sums add up, and nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.broker.broker_process import clean_environment

END_S = 300
SUMS = 5


@pytest.fixture
def demo_tmp(tmp_path: Path) -> Path:
    """Where the demo makes its folder; tests look whether it is empty again."""
    for name in ("pyspark", "pyarrow", "obstore", "deltalake"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def start(tmp: Path, arguments: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "flintmq", "demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=clean_environment({"TMPDIR": str(tmp), "TERM": "xterm-256color"}),
        start_new_session=True,
    )


def check_sums(text: str) -> None:
    assert text.count("✓") == SUMS, text
    assert "✗" not in text, text


def check_nothing_is_left(demo: subprocess.Popen[bytes], tmp: Path, port: int) -> None:
    assert processes_of_session(demo.pid) == []
    assert list(tmp.iterdir()) == []
    with socket.socket() as asking:
        assert asking.connect_ex(("127.0.0.1", port)) != 0


def processes_of_session(session: int) -> list[str]:
    """What runs and was started by the leader of a session, whatever its parents are by now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_demo_ends_by_itself_adds_up_and_leaves_nothing(demo_tmp: Path) -> None:
    demo = start(demo_tmp, ("--seconds", "8", "--rate", "200"), subprocess.PIPE)
    out, _ = demo.communicate(timeout=END_S)
    text = out.decode()
    assert demo.returncode == 0, text
    check_sums(text)
    port = re.search(r"broker at 127\.0\.0\.1:(\d+)", text)
    assert port is not None
    check_nothing_is_left(demo, demo_tmp, int(port[1]))
    # The pipeline's file is shown, and there is poison in what it reads.
    assert "good_orders:" in text
    assert re.search(r"✓ spoiled = dead letters +([1-9]\d*) = \1\n", text)


@pytest.mark.long
def test_ctrl_c_in_a_terminal_ends_a_demo_that_adds_up(demo_tmp: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    demo = start(demo_tmp, ("--seconds", "3600", "--rate", "200"), theirs)
    os.close(theirs)
    screen = Screen(ours)
    port = screen.wait_for(r"broker 127\.0\.0\.1:(\d+)")
    screen.wait_for("by country")
    # As a terminal does it: everybody in the foreground gets it.
    os.killpg(demo.pid, signal.SIGINT)
    assert demo.wait(END_S) == 0, screen.text
    screen.finish()
    # The terminal is given back, and then the sums are told.
    _, left, after = screen.text.partition("\x1b[?1049l")
    assert left
    check_sums(after)
    check_nothing_is_left(demo, demo_tmp, int(port))


@pytest.mark.long
def test_a_demo_that_is_kept_can_be_looked_at(demo_tmp: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    demo = start(demo_tmp, ("--seconds", "5", "--rate", "100", "--keep", str(kept)), subprocess.PIPE)
    out, _ = demo.communicate(timeout=END_S)
    assert demo.returncode == 0, out.decode()
    assert {"broker", "lake", "demo.yaml", "customers.csv"} <= {one.name for one in kept.iterdir()}
    assert list(demo_tmp.iterdir()) == []
    again = start(demo_tmp, ("--seconds", "5", "--keep", str(kept)), subprocess.PIPE)
    out, _ = again.communicate(timeout=END_S)
    assert again.returncode == 2
    assert b"not empty" in out


class Screen:
    """What a process writes to its terminal."""

    def __init__(self, descriptor: int) -> None:
        self.text = ""
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, 65_536)
            except OSError:  # how Linux says that nobody has the terminal any more
                data = b""
            with self._changed:
                self.text += data.decode(errors="replace")
                self._changed.notify_all()
            if not data:
                return

    def wait_for(self, pattern: str) -> str:
        """The first group of what was found, or all of it."""
        with self._changed:
            if not self._changed.wait_for(lambda: re.search(pattern, self.text), END_S):
                raise AssertionError(f"{pattern} never came: {self.text[-4000:]}")
            found = re.search(pattern, self.text)
        assert found is not None
        return found[found.lastindex or 0]

    def finish(self) -> None:
        self._thread.join(END_S)
        os.close(self._descriptor)
