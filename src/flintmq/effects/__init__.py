"""Everything the broker wants from the outside world, as protocols.

Decisions never touch the world: shells receive these from the composition root, so that a test can run
the same code on a simulated disk, a controlled clock and a seeded source of randomness.
This module must not import an implementation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

ASIDE = ".tmp"
"""Behind the name of a file that is not there yet, or no longer."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch, as Kafka timestamps are."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Callbacks on the event loop."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...


class Random(Protocol):
    def bytes(self, count: int) -> bytes: ...


class Executor(Protocol):
    """Blocking work, away from the loop."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` elsewhere, then call `done(result, None)` or `done(None, error)` on the loop."""
        ...

    def run(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """The same for coroutines."""
        ...


class PeerConnection(Protocol):
    """A connection to another broker of the cluster. It is authenticated, and answers requests in their order."""

    async def request(self, frame: bytes) -> Buffer:
        """Send a request and return the frame of its response, both with their headers and without their lengths.

        ConnectionError if the connection is lost before that: the request may have been carried out.
        """
        ...

    def close(self) -> None:
        """Requests that still wait for a response fail."""
        ...


class Network(Protocol):
    """The way to the other brokers of the cluster."""

    async def connect(self, node_id: int) -> PeerConnection:
        """Connect to a broker at the address that it has registered. ConnectionError if it cannot be reached."""
        ...


class ChildProcess(Protocol):
    """A process at the other end of two pipes."""

    async def write(self, data: Buffer) -> None:
        """Write to its standard input. BrokenPipeError or ConnectionResetError if it has ended."""
        ...

    async def read_line(self) -> bytes:
        """Return the next line of its standard output with its end; nothing at the end of the output."""
        ...

    async def wait(self) -> int:
        """Return its exit code once it has ended."""
        ...

    async def kill(self) -> None:
        """End it if it has not ended, and return once it has."""
        ...


class Subprocess(Protocol):
    """Processes of our own modules beside the broker."""

    async def start(self, module: str) -> ChildProcess:
        """Start `python -m module`."""
        ...


class File(Protocol):
    """One open file. Positions are explicit; nothing depends on a cursor."""

    path: str
    fd: int
    """The descriptor for sendfile, or -1 where there is none."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` or raise OSError; after an error the bytes from `position` on are unknown."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserve space up to `size`; the file grows to it, filled with zeros."""
        ...

    def sync(self) -> None:
        """Return once data and size are on stable storage. An error here must never be retried."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are strings, names come back sorted."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def list(self, path: str) -> Sequence[str]: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def makedirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`. Durable only after `sync_dir` of the folders concerned."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self) -> None:
        """Everything written so far, to stable storage: one call in place of thousands at shutdown.

        It does not report errors, so data that was acknowledged is synced file by file.
        """
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The outside world of one broker."""

    clock: Clock
    timers: Timers
    random: Random
    disk: Disk
    executor: Executor
    subprocess: Subprocess
    network: Network | None = None
    """None for a broker without a cluster."""
    boot_id: str = ""
    """Another one after each start of the machine; empty if that is not known."""


def read_file(disk: Disk, path: str) -> bytes:
    """The whole of a small file."""
    file = disk.open(path, writable=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_plainly(disk: Disk, path: str, data: Buffer) -> None:
    """Replace a file that a crash may damage, because it can be made again or is synced later."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    finally:
        file.close()


def write_atomically(disk: Disk, path: str, data: Buffer) -> None:
    """Replace `path` so that a crash leaves the old content or the new, never a mixture.

    ORDER: written aside, synced, renamed, folder synced.
    """
    aside = path + ASIDE
    file = disk.open(aside, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(aside, path)
    disk.sync_dir(path.rpartition("/")[0])
