"""Lines from a file descriptor, together with the moments at which nothing more is waiting to be read.

A program that pipes records in slowly wants each written at once; one that pipes in a million wants large
batches. Both are served by telling the reader when the input pauses.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

_READ_BYTES = 256 * 1024


def read_lines(fd: int) -> Iterator[bytes | None]:
    """Each line without its end; None whenever the next would have to be waited for."""
    rest = b""
    while data := os.read(fd, _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if not _has_more(fd):
            yield None
    if rest:
        yield rest.removesuffix(b"\r")


def _has_more(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])
