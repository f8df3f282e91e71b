"""Files in memory (memfd), for libraries that read keys from paths only: a key never reaches a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from flintmq.errors import ConfigurationError


@contextmanager
def in_memory(data: bytes) -> Iterator[str]:
    """A path to `data` that exists in this process alone."""
    if not hasattr(os, "memfd_create"):
        raise ConfigurationError(
            "TLS needs Linux: this system has no files in memory (memfd) to load keys from"
        )
    fd = os.memfd_create("flintmq-key", os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
