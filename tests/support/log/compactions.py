"""Passes of compaction on a simulated disk: each of their steps is one of the simulated executor's."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from flintmq.effects import Disk, Executor
from flintmq.errors import FlintError
from flintmq.storage.compaction.cleaner import clean
from flintmq.storage.compaction.job import CompactionFailure, CompactionJob, Event


class SimulatedCompactions:
    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor

    async def run(self, job: CompactionJob) -> AsyncGenerator[Event, None]:
        events = clean(self._disk, job)
        try:
            while (event := await self._executor.run(next, events, None)) is not None:
                yield event
        except (OSError, FlintError) as error:
            yield CompactionFailure(reason=str(error))
