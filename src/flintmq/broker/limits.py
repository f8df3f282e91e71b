"""Bounds on what requests may cost: memory for unpacked records, steps of the loop, and parked fetches.

Looking into records takes memory and a thread's time in proportion to what they unpack to, which a client
chooses. Done one after the other, in the order of arrival, a hundred of them need no more memory than one, and
leave the other threads to requests that wait for the disk. A request that names ten thousand topics is handled a
few hundred at a time, so that other requests are handled in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from flintmq.effects import Executor

T = TypeVar("T")

ITEMS_PER_TURN = 200
"""Topics, groups, transactions … of one request that are handled in one turn of the loop."""
PARKED_PARTITIONS_MAX = 100_000
SMALL_FETCH_PARTITIONS = 100
SMALL_FETCHES_PARTITIONS_MAX = 200_000


class SerialExecutor:
    """Runs work in threads of an executor, one piece at a time."""

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
    """Return the results in order. What shares a turn shares the sync of the metadata journal too."""
    rest = iter(work)
    results: list[T] = []
    while some := list(islice(rest, ITEMS_PER_TURN)):
        results += await asyncio.gather(*some)
        await asyncio.sleep(0)
    return results


class ParkedFetchLimit:
    """Bounds the partitions that parked fetches wait for, in all connections.

    A client may have many fetches under way, each of thousands of partitions and with a wait of weeks; each
    partition that is waited for takes memory. Beyond the bound a fetch gets its response at once with what there is,
    as if its wait were over. Fetches of few partitions, as nearly all are, have a higher bound.
    """

    def __init__(
        self,
        partitions_max: int = PARKED_PARTITIONS_MAX,
        *,
        small_fetch_partitions: int = SMALL_FETCH_PARTITIONS,
        small_fetches_partitions_max: int = SMALL_FETCHES_PARTITIONS_MAX,
    ) -> None:
        self.partitions = 0
        self._partitions_max = partitions_max
        self._small_fetch_partitions = small_fetch_partitions
        self._small_fetches_partitions_max = small_fetches_partitions_max

    def may_wait(self, partitions: int) -> bool:
        is_small = partitions <= self._small_fetch_partitions
        limit = self._small_fetches_partitions_max if is_small else self._partitions_max
        return self.partitions + partitions <= limit
