"""Compaction as a process of its own: `python -m flintmq.storage.compaction.worker`.

A job comes as one line of JSON on the standard input, events go as lines to the standard output. After each cleaned
segment the process waits for another line, because the broker puts the segment into the log meanwhile. It runs only
where a core has nothing else to do and keeps to the rate of its job, so that it yields to traffic.

The standard input is its lifeline: when the other end is closed, or the broker dies, the process ends without a word
at the next chunk of a file, for the next broker may start another one in the same directory. What it leaves, if it is
killed, are files ending in `.cleaned`, which nobody reads. A process that a dead broker left may still be busy, with
a long sync for instance: the next one waits until it is gone, else they would write each other's files.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from flintmq.effects.real import RealDisk
from flintmq.errors import FlintError
from flintmq.storage.compaction.cleaner import clean
from flintmq.storage.compaction.job import CompactionFailure, Event, GroupResult, decode_job, encode_event

_NICENESS = 10
_PAUSE_MIN_S = 0.02


class RateLimit:
    """Bytes per second on average, counted from the first; without a limit it only counts."""

    def __init__(
        self, bytes_per_second: int, monotonic: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._start = monotonic()
        self._bytes = 0

    def __call__(self, byte_count: int) -> None:
        if not self._bytes_per_second:
            return
        self._bytes += byte_count
        ahead_s = self._bytes / self._bytes_per_second - (self._monotonic() - self._start)
        if ahead_s >= _PAUSE_MIN_S:
            self._sleep(ahead_s)
        elif ahead_s < -1:
            # Time spent waiting for the broker is not made up for by a burst.
            self._start, self._bytes = self._monotonic(), 0


class Abandoned(Exception):
    """Nobody waits for the result any more."""


class ParentWatch:
    """Whether the other end of the standard input is still there."""

    def __init__(self, fd: int) -> None:
        self._poll = select.poll()
        # Nothing is asked for but what is always told: that the other end is gone.
        self._poll.register(fd, 0)

    def check(self, wait_s: float = 0) -> None:
        """Raises Abandoned as soon as it is gone, within `wait_s`."""
        if self._poll.poll(wait_s * 1000):
            raise Abandoned


@contextmanager
def exclusive_lock(directory: str) -> Iterator[None]:
    """Wait until no other process compacts there. The lock goes with the process, however it ends."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _lower_priority() -> None:
    """Run when a core has nothing better to do: whoever wakes up for a client goes first.

    Not never: even then the system gives a little of a core that is always busy.
    """
    os.nice(_NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Carry out the one job that comes from `source`."""
    line = source.readline()
    if not line:
        return
    job = decode_job(line)
    lifeline = ParentWatch(source.fileno())
    limit = RateLimit(job.bytes_per_second, time.monotonic, lifeline.check)

    def pace(byte_count: int) -> None:
        lifeline.check()
        limit(byte_count)

    try:
        try:
            with exclusive_lock(job.directory):
                _write_events(sink, source, clean(RealDisk(), job, pace))
        except (OSError, FlintError) as error:
            _write(sink, CompactionFailure(reason=str(error)))
    except (Abandoned, BrokenPipeError):
        return


def _write_events(sink: BinaryIO, source: BinaryIO, events: Iterable[Event]) -> None:
    for event in events:
        _write(sink, event)
        if isinstance(event, GroupResult) and not source.readline():
            return


def _write(sink: BinaryIO, event: Event) -> None:
    sink.write(encode_event(event))
    sink.flush()


if __name__ == "__main__":
    # A Ctrl-C on the terminal is for the broker, which then ends this process. Not a session of its own: the system
    # would weigh it against the broker's as one against one, however idle it means to be.
    os.setpgid(0, 0)
    _lower_priority()
    serve(sys.stdin.buffer, sys.stdout.buffer)
