"""Heavy work in bearable pieces: one at a time, or so many in a turn of the loop.

Looking into records takes memory and a thread's time in proportion to what they unpack to, which a client
chooses. Done one after the other, in the order of arrival, a hundred of them cost no more memory than one, and
leave the other threads to those who wait for the disk. A request that names ten thousand topics is handled a
few hundred at a time, so that the requests of others come in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from flintmq.effects import Executor

T = TypeVar("T")

TOPICS_PER_TURN = 200


class SerialExecutor:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._turn.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._turn.release()

    async def run(self, executor: Executor, work: Callable[..., T], *args: Any) -> T:
        async with self:
            return await executor.run(work, *args)


async def gather_in_turns(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results in order; what shares a turn shares the sync of the metadata journal too."""
    rest = iter(work)
    results: list[T] = []
    while some := list(islice(rest, TOPICS_PER_TURN)):
        results += await asyncio.gather(*some)
        await asyncio.sleep(0)
    return results
