"""Starts and stops the server of the warm session.

    up(directory, idle_s=1800, environment=os.environ)      StartedSession
    down(directory)                                          the process that was stopped, or None

Invariant: one start or stop at a time; when `up` returns, the session takes work, and when `down` returns, the server
and its JVM are gone.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from flintmq.spark.warm.client import WarmSession, find_warm_session
from flintmq.spark.warm.fingerprint import take_fingerprint
from flintmq.spark.warm.server import StartRequest
from flintmq.spark.warm.state import (
    COMMAND_LOCK,
    LOG_FILE,
    SERVER_LOCK,
    WarmSessionError,
    await_release,
    hold,
    holder,
    make_private,
    private_opener,
    state_directory,
)

START_S: Final = 120.0
STOP_S: Final = 30.0
_POLL_S: Final = 0.05
_LOG_BYTES_SHOWN: Final = 2000


class StartedSession(NamedTuple):
    warm: WarmSession
    is_new: bool


def up(
    environment: Mapping[str, str], *, idle_s: float, on_start: Callable[[], None] = lambda: None
) -> StartedSession:
    """Start the server unless one is up that this process may use; WarmSessionError if it may not."""
    directory = state_directory(environment)
    make_private(directory)
    with hold(directory, COMMAND_LOCK, wait_s=START_S):
        warm = find_warm_session(environment)
        if warm is not None:
            if warm.differences:
                raise WarmSessionError(
                    f"a Spark session is up (process {warm.state.pid}) that was started with another setup; it "
                    f"differs in {', '.join(warm.differences)}. End it with `flintmq spark down`, then start this one"
                )
            return StartedSession(warm, is_new=False)
        on_start()
        request = StartRequest(
            token=secrets.token_urlsafe(32),
            session_id=str(uuid.uuid4()),
            idle_s=idle_s,
            fingerprint=take_fingerprint(environment),
        )
        return StartedSession(_start(directory, request, environment), is_new=True)


def down(environment: Mapping[str, str]) -> int | None:
    """Stop the server, and wait for its end; return its process, None if there was none."""
    directory = state_directory(environment)
    if not os.path.isdir(directory):
        return None
    with hold(directory, COMMAND_LOCK, wait_s=START_S):
        pid = holder(directory, SERVER_LOCK)
        if pid is None:
            return None
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            if await_release(directory, SERVER_LOCK, wait_s=STOP_S):
                return pid
        raise WarmSessionError(f"the process {pid} does not end; look at {os.path.join(directory, LOG_FILE)}")


def _start(directory: str, request: StartRequest, environment: Mapping[str, str]) -> WarmSession:
    log = os.path.join(directory, LOG_FILE)
    with open(log, "wb", opener=private_opener) as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "flintmq.spark.warm.server", directory],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd=directory,
            # Out of reach of the terminal's signals, and there after it is closed.
            start_new_session=True,
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(request))
    deadline = time.monotonic() + START_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            warm = find_warm_session(environment)
            if warm is not None and warm.state.pid == process.pid:
                return warm
            time.sleep(_POLL_S)
    except BaseException:
        _end(process)
        raise
    reason = "takes too long" if process.poll() is None else f"ended with code {process.returncode}"
    _end(process)
    raise WarmSessionError(
        f"Spark's server {reason}; `flintmq spark doctor --start` may say why. The end of {log}:\n{_end_of(log)}"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_of(log: str) -> str:
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _LOG_BYTES_SHOWN))
        return file.read().decode(errors="replace").strip()
