"""What the operating system knows of this process. Reads /proc where there is one: for a thread."""

from __future__ import annotations

import os
import resource
import sys
import threading
from dataclasses import dataclass

_PAGE = resource.getpagesize()
# ru_maxrss counts bytes there, kilobytes everywhere else.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    """0 where it is not known."""
    open_fds: int
    max_fds: int
    threads: int


def read_process() -> ProcessMetrics:
    times = os.times()
    virtual, resident = _memory()
    return ProcessMetrics(
        cpu_seconds=times.user + times.system,
        resident_bytes=resident,
        virtual_bytes=virtual,
        open_fds=_open_fds(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=threading.active_count(),
    )


def _memory() -> tuple[int, int]:
    """Virtual and resident bytes; without /proc the latter at its highest so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = file.read().split()[:2]
    except OSError:
        return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
    return int(virtual) * _PAGE, int(resident) * _PAGE


def _open_fds() -> int:
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            # Linux 6.2 and later tell the number as the folder's size; elsewhere it must be counted.
            return (directory.startswith("/proc") and os.stat(directory).st_size) or len(
                os.listdir(directory)
            ) - 1
        except OSError:
            continue
    return 0
