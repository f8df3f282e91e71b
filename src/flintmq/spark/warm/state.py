"""What is known of the warm session of this user on this machine: a directory with its state, its locks and its log.

    state = read_state(directory)             None: none is up
    with hold(directory, SERVER_LOCK): …      the server, for as long as it lives

Whether a server is there is asked of its lock, which ends with its process: neither a state that a killed server has
left nor a process that has got its id since is taken for a server. Invariant: the directory and every file in it are
for this user alone: the token in the state lets its reader run code. Imports no pyspark.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from flintmq.errors import FlintError
from flintmq.spark.spark_home import cache_folder

SERVER_LOCK: Final = "server.lock"
COMMAND_LOCK: Final = "command.lock"
"""Held while a session is started or stopped."""
LOG_FILE: Final = "server.log"
_STATE_FILE: Final = "state.json"
_STATE_BYTES_MAX: Final = 1 << 20
_PID_CHARS_MAX: Final = 20


class WarmSessionError(FlintError):
    """The warm session cannot be started, used or stopped; the message says what to do."""


class LockHeld(WarmSessionError):
    """Another process has the lock."""


class WarmState(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    port: int
    """On the loopback address."""
    token: str
    session_id: str
    """The same for all commands, so that Spark prepares a session only once."""
    started_s: float
    active_s: float
    """When work was last seen; both are seconds since 1970."""
    idle_s: float
    """For how long there may be no work before the server ends."""
    fingerprint: dict[str, str]


def state_directory(environment: Mapping[str, str]) -> str:
    """Home directories may be shared by machines; a session is of one."""
    return os.path.join(cache_folder(environment), f"spark-session-{socket.gethostname()}")


def make_private(directory: str) -> None:
    """Make the directory; refuse one that is somebody else's."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        about = os.lstat(directory)
        if about.st_uid != os.getuid():
            raise WarmSessionError(f"{directory} belongs to another user; remove it, or set XDG_CACHE_HOME")
        if about.st_mode & 0o077:
            os.chmod(directory, 0o700)
    except OSError as error:
        raise WarmSessionError(
            f"{directory} cannot be used: {error}. Set XDG_CACHE_HOME to a directory of your own"
        ) from error


def read_state(directory: str) -> WarmState | None:
    """Return the state of the server that is up; None if there is none, whatever a dead one has left."""
    if not is_held(directory, SERVER_LOCK):
        return None
    try:
        with open(os.path.join(directory, _STATE_FILE), "rb") as file:
            return msgspec.json.decode(file.read(_STATE_BYTES_MAX), type=WarmState)
    except FileNotFoundError:
        # It is starting, or stopping.
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise WarmSessionError(
            f"{os.path.join(directory, _STATE_FILE)} cannot be read: {error}. End the session with "
            "`flintmq spark down`"
        ) from error


def write_state(directory: str, state: WarmState) -> None:
    """Replace the state as a whole. Only the holder of the server's lock may."""
    with tempfile.NamedTemporaryFile("wb", dir=directory, delete=False) as file:
        # mkstemp's mode is 0600.
        file.write(msgspec.json.encode(state))
    os.replace(file.name, os.path.join(directory, _STATE_FILE))


def remove_state(directory: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, _STATE_FILE))


@contextmanager
def hold(directory: str, name: str, *, wait_s: float = 0.0, poll_s: float = 0.05) -> Iterator[None]:
    """Hold a lock; raise LockHeld if another process still has it after `wait_s`."""
    # Not inheritable: the lock must not outlive this process in a child.
    with open(os.path.join(directory, name), "ab", opener=private_opener) as file:
        if not _comes_true(lambda: _is_taken(file.fileno()), wait_s, poll_s):
            raise LockHeld(f"another process holds {file.name}; try again when it has ended")
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


def holder(directory: str, name: str) -> int | None:
    """Return the process that holds a lock; None if nobody does."""
    if not is_held(directory, name):
        return None
    with open(os.path.join(directory, name), "rb") as file:
        text = file.read(_PID_CHARS_MAX)
    return int(text) if text.isdigit() else None


def is_held(directory: str, name: str) -> bool:
    try:
        with open(os.path.join(directory, name), "rb") as file:
            # Shared, so that two who look do not take each other for a server.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def await_release(directory: str, name: str, *, wait_s: float, poll_s: float = 0.05) -> bool:
    return _comes_true(lambda: not is_held(directory, name), wait_s, poll_s)


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _comes_true(condition: Callable[[], bool], wait_s: float, poll_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
