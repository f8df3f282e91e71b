"""Producer ids, unique for the life of the cluster: taken from the store in blocks, handed out one by one."""

from __future__ import annotations

import asyncio

from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.store import Put

BLOCK = 1000


class ProducerIds:
    def __init__(self, metadata: ClusterMetadata, token: str = "") -> None:
        """`token` is unique among the brokers that take blocks from one store; a standalone broker needs none."""
        self._token = token
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._taking = asyncio.Lock()

    async def take(self) -> int:
        if self._next == self._end:
            async with self._taking:
                while self._next == self._end:
                    await self._take_block()
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> None:
        view = await self._metadata.store.get(keys.PRODUCER_IDS)
        item = view.items.get(keys.PRODUCER_IDS)
        start = keys.decode_producer_ids(item.value).next if item else 0
        value = keys.ProducerIdsValue(next=start + BLOCK, token=self._token)
        outcome = await self._metadata.txn(
            {keys.PRODUCER_IDS: item.revision if item else 0}, {keys.PRODUCER_IDS: Put(keys.encode(value))}
        )
        if outcome.committed:
            self._next, self._end = start, start + BLOCK
