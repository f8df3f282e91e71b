"""A metadata store that several brokers share, in memory, with outcomes that a test chooses.

shared = SharedStore()
one, two = shared.session(), shared.session()
one.faults.append(Fault.LOST_RESPONSE)        its next transaction is applied, and ends as uncertain
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum, auto

from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.journal import RecoveredJournal
from flintmq.metadata.local_store import Keyspace
from flintmq.metadata.store import (
    LeaseLost,
    OutcomeUncertain,
    Put,
    RevisionCompacted,
    StoreChange,
    StoreItem,
    StoreUnavailable,
    StoreView,
    TxnOutcome,
)


class Fault(Enum):
    """What happens to one transaction."""

    NONE = auto()
    UNAVAILABLE = auto()
    LOST_REQUEST = auto()
    """Uncertain; it is never applied."""
    LOST_RESPONSE = auto()
    """Uncertain; it was applied."""
    LATE = auto()
    """Uncertain; it is applied after the next transaction, if it still can be."""


class SharedLease:
    def __init__(self, shared: SharedStore, lease_id: int, ttl: float) -> None:
        self.id = lease_id
        self.ttl = ttl
        self._shared = shared
        self._ended = asyncio.Event()

    def deadline(self) -> float:
        return asyncio.get_running_loop().time() + (0 if self._ended.is_set() else self.ttl)

    async def lost(self) -> None:
        await self._ended.wait()

    async def revoke(self) -> None:
        self.expire()

    def expire(self) -> None:
        """Drop the lease and its items, as time does."""
        if self._shared.leases.pop(self.id, None) is not None:
            items = self._shared.keyspace.items
            held: dict[str, Put | None] = {key: None for key in sorted(items) if items[key].lease == self.id}
            self._shared.apply({}, held)
            self._ended.set()


class SharedStore:
    def __init__(self) -> None:
        self.keyspace = Keyspace(RecoveredJournal(0, {}, []))
        self.leases: dict[int, SharedLease] = {}
        self.compacted_below = 0
        self._lease_id = 0
        self._changed = asyncio.Event()

    def session(self) -> StoreSession:
        return StoreSession(self)

    def lease(self, ttl: float) -> SharedLease:
        self._lease_id += 1
        made = self.leases[self._lease_id] = SharedLease(self, self._lease_id, ttl)
        return made

    def apply(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        keyspace = self.keyspace
        current = {key: keyspace.items.get(key) for key in expect}
        if any((item.revision if item else 0) != expect[key] for key, item in current.items()):
            return TxnOutcome(False, keyspace.revision, current)
        items: dict[str, StoreItem | None] = {}
        for key, put in sorted(writes.items()):
            if put is not None:
                if put.lease and put.lease not in self.leases:
                    raise LeaseLost(key)
                items[key] = StoreItem(put.value, keyspace.revision + 1, put.lease)
            elif key in keyspace.items:
                items[key] = None
        if items:
            keyspace.apply(StoreChange(keyspace.revision + 1, items))
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        return TxnOutcome(True, keyspace.revision)

    async def changed(self) -> None:
        await self._changed.wait()


class StoreSession:
    """`MetadataStore` for one broker."""

    max_ops = 8
    max_bytes = 1 << 20

    def __init__(self, shared: SharedStore) -> None:
        self.shared = shared
        self.faults: deque[Fault] = deque()
        self.is_cut_off = False
        self.before_txn: Callable[[Mapping[str, int], Mapping[str, Put | None]], object] = (
            lambda expect, writes: None
        )
        """Called before each transaction: what others do in the meantime."""
        self.txns: list[Mapping[str, Put | None]] = []
        self._late: list[tuple[dict[str, int], dict[str, Put | None]]] = []
        self._held = asyncio.Event()
        self._held.set()

    def hold_watch(self) -> None:
        self._held.clear()

    def release_watch(self) -> None:
        self._held.set()

    async def get(self, prefix: str, *, stale: bool = False) -> StoreView:
        await asyncio.sleep(0)
        self._check()
        return self.shared.keyspace.view(prefix)

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        assert len(expect) <= self.max_ops
        assert len(writes) <= self.max_ops
        expect, writes = dict(expect), dict(writes)
        await asyncio.sleep(0)
        self._check()
        self.before_txn(expect, writes)
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable("not now")
        self.txns.append(writes)
        if fault is Fault.LATE:
            self._late.append((expect, writes))
        elif fault is not Fault.LOST_REQUEST:
            outcome = self.shared.apply(expect, writes)
            for late in self._late:
                self.shared.apply(*late)
            self._late.clear()
            if fault is Fault.NONE:
                await asyncio.sleep(0)
                return outcome
        raise OutcomeUncertain("nobody knows")

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[StoreChange]:
        keyspace = self.shared.keyspace
        while True:
            await self._held.wait()
            self._check()
            if after < self.shared.compacted_below:
                raise RevisionCompacted(f"{after}")
            change = keyspace.next_change(prefix, after=after)
            # No progress is reported, as by etcd.
            if change is not None:
                after = change.revision
                if change.items:
                    yield change
            else:
                await self.shared.changed()

    async def lease(self, ttl: float) -> SharedLease:
        await asyncio.sleep(0)
        self._check()
        return self.shared.lease(ttl)

    async def close(self) -> None:
        self.is_cut_off = True

    def _check(self) -> None:
        if self.is_cut_off:
            raise StoreUnavailable("cut off")


async def joined(store: StoreSession) -> ClusterMetadata:
    """Return the metadata of one broker of a cluster."""
    metadata = ClusterMetadata(store, is_standalone=False)
    await metadata.start()
    return metadata
