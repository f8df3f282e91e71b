"""Where secrets of settings are read from: variables of the environment and small files."""

from __future__ import annotations

import os
import stat
from typing import Final

SECRET_BYTES_MAX: Final = 1 << 20


def environment_variable(name: str) -> str | None:
    return os.environ.get(name)


def read_secret_file(path: str) -> str:
    """Return the text of a regular file; OSError or ValueError say why it cannot be used.

    The size is bounded, and a pipe is refused, since it would block its reader and be empty the second time.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(SECRET_BYTES_MAX + 1)
    finally:
        os.close(fd)
    if len(data) > SECRET_BYTES_MAX:
        raise ValueError(f"it is larger than {SECRET_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Not chained: the error holds the bytes.
        pass
    raise ValueError("it is not UTF-8 text")
