"""Work for one other broker, sent in batches: one request is on its way at a time, and takes what has gathered.

Invariant: `send` or `fail` is called with every item once. The queue has no bound of its own: an item belongs to a
request or a transaction, which are bounded, and who puts it waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from flintmq.cluster.peers import Peer, PeerUnreachable

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

ITEMS_PER_REQUEST: Final = 1000


class PeerQueue(Generic[T]):
    def __init__(
        self,
        peer: Peer,
        *,
        send: Callable[[Peer, list[T]], Awaitable[None]],
        fail: Callable[[T], object],
        items_per_request: int = ITEMS_PER_REQUEST,
    ) -> None:
        """`send` carries out a batch and reports its results; if the broker is away, `fail` is called with each."""
        self._peer = peer
        self._send = send
        self._fail = fail
        self._items_per_request = items_per_request
        self._waiting: list[T] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, item: T) -> None:
        self._waiting.append(item)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"requests to broker {self._peer.node_id}")

    async def close(self) -> None:
        """Items that wait are neither sent nor failed: the broker stops, and so do those who put them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._peer.close()

    async def _run(self) -> None:
        while self._waiting:
            count = self._items_per_request
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            try:
                await self._send(self._peer, batch)
            except PeerUnreachable as error:
                logger.info("%s", error)
                for item in batch:
                    self._fail(item)
            except Exception:
                logger.exception("a response of broker %d could not be used", self._peer.node_id)
                for item in batch:
                    self._fail(item)
        self._task = None
