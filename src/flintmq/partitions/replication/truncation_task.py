"""A truncation of a follower's log, carried out in a thread while the broker goes on.

The log is the shorter one from the first step on, and takes no change until the files are cut, on stable storage. On
a full disk it is tried again: nothing else is possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flintmq.effects import Clock, Executor
from flintmq.errors import FlintError
from flintmq.storage.durability.flush import NoSpace
from flintmq.storage.log import Log
from flintmq.storage.truncation.truncation import Truncation

_FULL_DISK_RETRY_S: Final = 1.0


class TruncationTask:
    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        executor: Executor,
        finished: Callable[[], object],
        is_needed: Callable[[], bool],
    ) -> None:
        """`finished` is called when the log takes changes again. While `is_needed`, a full disk is waited for."""
        self._log = log
        self._clock = clock
        self._executor = executor
        self._finished = finished
        self._is_needed = is_needed
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on."""
        truncation = self._log.begin_truncation(offset, self._clock.now_ms())
        if truncation is not None:
            await self._run(truncation)

    async def restart_at(self, offset: int) -> None:
        """Drop everything, and go on with an empty log at `offset`."""
        await self._run(self._log.begin_restart(offset, self._clock.now_ms()))

    async def ended(self) -> None:
        """Return when no truncation is under way."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self, truncation: Truncation) -> None:
        """Wait for a truncation that has begun. It goes on when the caller is cancelled: the log is cut already."""
        self._task = asyncio.create_task(self._carry_out(truncation), name=f"truncation of {self._log.name}")
        await asyncio.shield(self._task)

    async def _carry_out(self, truncation: Truncation) -> None:
        failure: BaseException | None = None
        try:
            is_cut = await self._is_cut(truncation)
            while not is_cut:
                await asyncio.sleep(_FULL_DISK_RETRY_S)
                is_cut = await self._is_cut(truncation)
        except (OSError, FlintError) as error:
            failure = error
        self._task = None
        self._log.finish_truncation(truncation, self._clock.now_ms(), failure)
        self._finished()

    async def _is_cut(self, truncation: Truncation) -> bool:
        """Cut the files; False if the disk is full, and that may pass."""
        try:
            await self._executor.run(truncation.run)
        except NoSpace:
            if not self._is_needed():
                raise
            return False
        return True
