"""Processes beside a simulated broker: the compaction worker, as steps of the simulated executor.

A child speaks the lines of the real one and works on the broker's disk. It ends with the broker that started it.
"""

from __future__ import annotations

from collections.abc import Iterator

from flintmq.effects import Buffer, Disk, Executor
from flintmq.errors import FlintError
from flintmq.storage.compaction.cleaner import clean
from flintmq.storage.compaction.job import CompactionFailure, Event, decode_job, encode_event

COMPACTION_WORKER = "flintmq.storage.compaction.worker"


class SimulatedWorker:
    """`flintmq.storage.compaction.worker`: a job comes in one line, and each line after it continues."""

    def __init__(self, disk: Disk, executor: Executor, dies_after: int | None) -> None:
        self._disk = disk
        self._executor = executor
        self._lines_left = dies_after
        self._events: Iterator[Event] | None = None
        self._has_ended = False

    async def write(self, data: Buffer) -> None:
        if self._has_ended:
            raise BrokenPipeError
        if self._events is None:
            self._events = clean(self._disk, decode_job(bytes(data)))

    async def read_line(self) -> bytes:
        assert self._events is not None, "nothing was written to the child"
        if self._has_ended or self._dies():
            return b""
        try:
            event = await self._executor.run(next, self._events, None)
        except (OSError, FlintError) as error:
            self._events = iter(())
            event = CompactionFailure(reason=str(error))
        if event is None:
            self._has_ended = True
            return b""
        return encode_event(event)

    async def wait(self) -> int:
        return 0 if self._lines_left is None else -9

    async def kill(self) -> None:
        self._has_ended = True

    def _dies(self) -> bool:
        if self._lines_left is None:
            return False
        self._lines_left -= 1
        self._has_ended = self._lines_left < 0
        return self._has_ended


class SimulatedSubprocess:
    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor
        self._dies_after: int | None = None

    async def start(self, module: str) -> SimulatedWorker:
        assert module == COMPACTION_WORKER, f"{module} is not simulated"
        dies_after, self._dies_after = self._dies_after, None
        return SimulatedWorker(self._disk, self._executor, dies_after)

    def kill_next(self, *, after_lines: int) -> None:
        """Let the next child be killed once it has written that many lines."""
        self._dies_after = after_lines
