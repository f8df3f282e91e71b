"""The real world: the operating system's clock, disk, randomness and threads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from flintmq.effects import Buffer

T = TypeVar("T")


def _sync(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # on macOS fsync alone leaves data in the drive's cache
    else:
        os.fdatasync(fd)


class SystemClock:
    __slots__ = ("monotonic",)

    def __init__(self) -> None:
        # Asked twice for every request: not wrapped.
        self.monotonic: Callable[[], float] = time.monotonic

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemRandom:
    def bytes(self, count: int) -> bytes:
        return os.urandom(count)


class LoopExecutor:
    """A few threads whose results come back on the loop. Pending work is bounded by who submits it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 4) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="flintmq-io")

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        def finished(future: Future[T]) -> None:
            error = future.exception()
            result = None if error else future.result()
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                pass  # the loop has closed: nobody is left to be told

        self._pool.submit(work).add_done_callback(finished)

    def run(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._loop.run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class RealFile:
    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self.fd, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self.fd, view[written:], position + written)

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self.fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.fd, 0, size)
        else:
            os.ftruncate(self.fd, size)

    def sync(self) -> None:
        _sync(self.fd)

    def __del__(self) -> None:
        # The last reader of a deleted or evicted segment lets go of its descriptor here.
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


class RealDisk:
    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        os.sync()

    def usage(self, path: str) -> tuple[int, int]:
        st = os.statvfs(path)
        return st.f_blocks * st.f_frsize, st.f_bavail * st.f_frsize
