"""One run at a time, and what others may know and want of it: a lock, a status and a request to stop, as files.

    run.lock      held for as long as the pipeline runs; the system gives it back whatever happens to the process
    status.json   written anew every moment by who holds the lock
    stop          made by who wants the run to end

Invariant: who holds the lock is the only one that runs. A status is that of a running pipeline only while the lock
is held; otherwise it says how the last run ended, or that it died.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from flintmq.errors import ConfigurationError, FlintError
from flintmq.pipeline.spec.model import Pipeline

RUNNING: Final = ("starting", "running", "stopping")
_POLL_S: Final = 0.1
_LOCK_ATTEMPTS: Final = 5
_TOLD: Final = frozenset(
    ("pipeline", "state", "pid", "host", "started_ms", "heartbeat_ms", "error", "dead_letters", "sinks")
)
_ANEW: Final = "remove it: a run writes it anew"


class ControlError(FlintError):
    """A file of a run cannot be read or written."""


class AlreadyRunning(FlintError):
    """Another process runs the pipeline."""


def located(path: str) -> str:
    """For Spark, and for whoever has another working folder."""
    return path if "://" in path else os.path.abspath(path)


def control_folder(pipeline: Pipeline, path: str | None = None) -> str:
    """Beside the checkpoint; where that is no folder of this machine, beside the file."""
    place = located(path or pipeline.checkpoint_path)
    return pipeline.path(f".flint/{pipeline.name}") if "://" in place else place


class Control:
    """Of the process that runs the pipeline."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._name = name
        self._lock: Any = None
        self._started_ms = _now_ms()

    def __enter__(self) -> Control:
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._lock = open(os.path.join(self._folder, "run.lock"), "a")
        except OSError as error:
            raise ConfigurationError(
                f"the checkpoint {self._folder} cannot be written: {error.strerror}; "
                "name a folder of your own with `checkpoint`"
            ) from error
        if not self._take():
            self._lock.close()
            raise AlreadyRunning(
                f"{self._name} runs already{_by(self._folder)}; stop it with `flintmq pipeline stop`"
            )
        self._forget_stop()
        return self

    def _take(self) -> bool:
        # Who asks whether it is held holds it for a moment.
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                time.sleep(_POLL_S)
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._forget_stop()
        self._lock.close()

    @property
    def is_stop_wanted(self) -> bool:
        return os.path.exists(os.path.join(self._folder, "stop"))

    def report(self, state: str, figures: Mapping[str, Any], *, error: str | None = None) -> None:
        status = {
            "pipeline": self._name,
            "state": state,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started_ms": self._started_ms,
            "heartbeat_ms": _now_ms(),
            "error": error,
            **figures,
        }
        path = os.path.join(self._folder, "status.json")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(status, file)
        os.replace(f"{path}.new", path)

    def _forget_stop(self) -> None:
        try:
            os.unlink(os.path.join(self._folder, "stop"))
        except FileNotFoundError:
            pass


def read_status(folder: str) -> dict[str, Any] | None:
    """None if the pipeline has never run. `state` is `died` where a process said that it runs, and is gone."""
    path = os.path.join(folder, "status.json")
    try:
        with open(path, encoding="utf-8") as file:
            status: dict[str, Any] = json.load(file)
        missing = _TOLD - status.keys()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ConfigurationError(f"{folder} is a file; name a folder with `checkpoint`") from error
    except OSError as error:
        raise ControlError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise ControlError(f"{path} is damaged ({error}); {_ANEW}") from error
    if missing:
        raise ControlError(f"{path} is damaged (it has no {min(missing)}); {_ANEW}")
    if status["state"] in RUNNING and not is_locked(folder):
        status["state"] = "died"
    return status


def is_locked(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "run.lock"), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False


def request_stop(folder: str, *, timeout_s: float) -> bool:
    """Whether it has ended in time; also if it did not run."""
    if not is_locked(folder):
        return True
    path = os.path.join(folder, "stop")
    try:
        with open(path, "w", encoding="utf-8"):
            pass
    except OSError as error:
        raise ControlError(f"{path} cannot be written: {error.strerror}") from error
    deadline = time.monotonic() + timeout_s
    while is_locked(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _by(folder: str) -> str:
    try:
        status = read_status(folder)
    except FlintError:
        return ""
    return "" if status is None else f" as process {status['pid']} on {status['host']}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
