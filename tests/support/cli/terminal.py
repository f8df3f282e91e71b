"""A terminal for what a command says on standard error, in this process or in another.

with Terminal() as terminal:
    with terminal.as_stderr(): …
terminal.text          everything that was written to it, codes that move the cursor included
"""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class Terminal:
    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        self._written: list[bytes] = []
        # What nobody reads would make the writer wait.
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Terminal:
        self._reading.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self.slave)
        self._reading.join()
        os.close(self._master)

    @property
    def text(self) -> str:
        return b"".join(self._written).decode(errors="replace")

    @contextmanager
    def as_stderr(self) -> Iterator[None]:
        before = sys.stderr
        with open(os.dup(self.slave), "w", buffering=1, encoding="utf-8") as file:
            sys.stderr = file
            try:
                yield
            finally:
                sys.stderr = before

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:
                return  # all who could write have closed it
            if not data:
                return
            self._written.append(data)
