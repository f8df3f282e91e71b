"""Open log files, at most so many at a time.

A segment asks for its file when it needs one; when too many are open, one that was not used lately is let
go (second chance). Letting go is dropping a reference: whoever still sends from the file holds it too, and
the descriptor closes with the last holder.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from flintmq.effects import Disk, File


class Holder(Protocol):
    """Something that keeps one open file and can let it go."""

    file: File | None
    used: bool


class Descriptors:
    def __init__(self, disk: Disk, limit: int) -> None:
        self._disk = disk
        self._limit = max(8, limit)
        self._holders: deque[Holder] = deque()
        # Recovery and lookups by time open files from threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, holder: Holder, path: str, *, create: bool = False) -> File:
        """Open `path` for `holder`; the caller found `holder.file` to be None."""
        file = self._disk.open(path, create=create)
        with self._lock:
            # Each holder is looked at twice at most: once to take its mark away, once to let it go.
            for _ in range(2 * len(self._holders)):
                if len(self._holders) < self._limit:
                    break
                oldest = self._holders.popleft()
                if oldest.file is None:
                    continue
                if oldest.used:
                    oldest.used = False
                    self._holders.append(oldest)
                else:
                    oldest.file = None
            holder.file = file
            holder.used = True
            self._holders.append(holder)
        return file
