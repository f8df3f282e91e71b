"""A disk that never waits for stable storage.

What a test's broker writes must survive the broker, not a power loss: the page cache is enough. Everything
else is the real file system.
"""

from __future__ import annotations

from flintmq.effects.real import RealDisk, RealFile


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Nothing to wait for."""


class UnsyncedDisk(RealDisk):
    def open(self, path: str, *, create: bool = False, writable: bool = True) -> UnsyncedFile:
        file = super().open(path, create=create, writable=writable)
        # Taken over: the file it came from must not close it.
        fd, file.fd = file.fd, -1
        return UnsyncedFile(path, fd)

    def sync_dir(self, path: str) -> None:
        """Nothing to wait for."""

    def sync_all(self) -> None:
        """Nothing to wait for."""
