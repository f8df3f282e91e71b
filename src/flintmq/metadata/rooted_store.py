"""A part of a store that others use as well: everything under one root, as if it were the whole store.

    RootedStore(store, "/flintmq/prod/")       "/topics/t" here is "/flintmq/prod/topics/t" there

Revisions are those of the whole store: changes of keys outside the root make revisions that do not appear here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from flintmq.metadata.store import Lease, MetadataStore, Put, StoreChange, StoreView, TxnOutcome

V = TypeVar("V")


class RootedStore:
    def __init__(self, store: MetadataStore, root: str) -> None:
        """`root` begins and ends with a slash."""
        if not (root.startswith("/") and root.endswith("/")):
            raise ValueError(f"the root of a metadata store begins and ends with '/': {root!r}")
        self._store = store
        self._prefix = root[:-1]

    @property
    def max_ops(self) -> int:
        return self._store.max_ops

    @property
    def max_bytes(self) -> int:
        return self._store.max_bytes

    async def get(self, prefix: str, *, stale: bool = False) -> StoreView:
        view = await self._store.get(self._prefix + prefix, stale=stale)
        return StoreView(view.revision, self._inside(view.items))

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        outcome = await self._store.txn(self._outside(expect), self._outside(writes))
        return TxnOutcome(outcome.committed, outcome.revision, self._inside(outcome.current))

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[StoreChange]:
        async for change in self._store.watch(self._prefix + prefix, after=after):
            yield StoreChange(change.revision, self._inside(change.items))

    async def lease(self, ttl: float) -> Lease:
        return await self._store.lease(ttl)

    async def close(self) -> None:
        await self._store.close()

    def _outside(self, items: Mapping[str, V]) -> dict[str, V]:
        return {self._prefix + key: value for key, value in items.items()}

    def _inside(self, items: Mapping[str, V]) -> dict[str, V]:
        size = len(self._prefix)
        return {key[size:]: value for key, value in items.items()}
