"""The metadata store of a single node: all items in memory, every change in a journal first.

A transaction is decided against the changes that are already on their way, written, synced, and only then
applied and answered; those that wait while a sync runs share the next one. So nothing that a reader or a
watcher ever saw can be lost, and revisions never go back. A failed write or sync is fatal: what was on its
way is `Uncertain`, everything after it `Unavailable`, and `on_fatal` is told once.

Leases live as long as the process does: nobody else could take over, so time alone never ends one, and their
items are dropped when the store is next opened. This module must not know what the items mean.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from functools import partial
from itertools import islice

from flintmq.effects import Clock, Disk, Executor, Timers
from flintmq.errors import MetadataStoreError, StorageError
from flintmq.metadata.journal import Journal, RecoveredJournal
from flintmq.metadata.store import (
    LeaseLost,
    OutcomeUncertain,
    Put,
    RevisionCompacted,
    StoreChange,
    StoreItem,
    StoreUnavailable,
    StoreView,
    TransactionTooLarge,
    TxnOutcome,
)

log = logging.getLogger(__name__)

HISTORY_COUNT_MAX = 1_000
HISTORY_BYTES_MAX = 64 << 20
SNAPSHOT_AFTER_BYTES = 4 << 20


class Keyspace:
    """Items, their revision, and the latest changes. Pure; `apply` is the only way to change it."""

    def __init__(self, recovered: RecoveredJournal) -> None:
        self.items = recovered.items
        self.revision = recovered.revision
        self._keys = sorted(self.items)
        self._history: deque[StoreChange] = deque()
        self._history_bytes = 0
        for change in recovered.changes:
            self.apply(change)

    def apply(self, change: StoreChange) -> None:
        for key, item in change.items.items():
            if item is None:
                del self.items[key]
                del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self.items:
                    insort(self._keys, key)
                self.items[key] = item
        self.revision = change.revision
        self._history.append(change)
        self._history_bytes += _change_bytes(change)
        while len(self._history) > HISTORY_COUNT_MAX or self._history_bytes > HISTORY_BYTES_MAX:
            self._history_bytes -= _change_bytes(self._history.popleft())

    def forget_history(self) -> None:
        """Compact: only changes from now on can be watched."""
        self._history.clear()
        self._history_bytes = 0

    def view(self, prefix: str) -> StoreView:
        items: dict[str, StoreItem] = {}
        for index in range(bisect_left(self._keys, prefix), len(self._keys)):
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            items[key] = self.items[key]
        return StoreView(self.revision, items)

    def next_change(self, prefix: str, *, after: int) -> StoreChange | None:
        """The first revision after this one that touched the prefix, else progress, else None at the end."""
        oldest = self.revision - len(self._history)
        if not oldest <= after <= self.revision:
            raise RevisionCompacted(
                f"revision {after} was asked for; changes {oldest + 1} to {self.revision} are kept"
            )
        for change in islice(self._history, after - oldest, None):
            items = {key: item for key, item in change.items.items() if key.startswith(prefix)}
            if items:
                return StoreChange(change.revision, items)
        return StoreChange(self.revision, {}) if after < self.revision else None


class KeyspaceOverlay:
    """Decisions on top of a keyspace, each seeing those before it, none of them applied yet. Pure."""

    def __init__(self, keyspace: Keyspace, leases: Container[int]) -> None:
        """`leases` are the ids of those that live."""
        self._keyspace = keyspace
        self._leases = leases
        self._revision = keyspace.revision
        self._overlay: dict[str, StoreItem | None] = {}
        self.changes: list[StoreChange] = []
        self.revoked: dict[int, None] = {}

    def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        current = {key: self._current(key) for key in expect}
        if any((item.revision if item else 0) != expect[key] for key, item in current.items()):
            return TxnOutcome(False, self._revision, current)
        items: dict[str, StoreItem | None] = {}
        for key in sorted(writes):
            put = writes[key]
            if put is None:
                if self._current(key) is not None:
                    items[key] = None
                continue
            if put.lease and (put.lease not in self._leases or put.lease in self.revoked):
                raise LeaseLost(f"{key} was to be written under lease {put.lease}, which does not live")
            items[key] = StoreItem(put.value, self._revision + 1, put.lease)
        return self._record(items)

    def revoke(self, lease_id: int) -> TxnOutcome:
        """Drop a lease and its items. All items are looked at: it is rare, and an index would not be."""
        self.revoked[lease_id] = None
        keys = sorted({**self._keyspace.items, **self._overlay})
        held = (key for key in keys if (item := self._current(key)) is not None and item.lease == lease_id)
        return self._record(dict.fromkeys(held))

    def _current(self, key: str) -> StoreItem | None:
        return self._overlay[key] if key in self._overlay else self._keyspace.items.get(key)

    def _record(self, items: dict[str, StoreItem | None]) -> TxnOutcome:
        if items:
            self._revision += 1
            self.changes.append(StoreChange(self._revision, items))
            self._overlay.update(items)
        return TxnOutcome(True, self._revision)


class LocalLease:
    """Renewed by being alive: as long as it is held, its deadline is a whole ttl away."""

    def __init__(self, store: LocalMetadataStore, lease_id: int, ttl: float, clock: Clock) -> None:
        self.id = lease_id
        self.ttl = ttl
        self._store = store
        self._clock = clock
        self._ended_at: float | None = None
        self._ended = asyncio.Event()

    def deadline(self) -> float:
        return (self._clock.monotonic() if self._ended_at is None else self._ended_at) + self.ttl

    async def lost(self) -> None:
        await self._ended.wait()

    async def revoke(self) -> None:
        if not self._ended.is_set():
            await self._store._submit(lambda draft: draft.revoke(self.id))

    def _end(self) -> None:
        if self._ended_at is None:
            self._ended_at = self._clock.monotonic()
            self._ended.set()


class LocalWatch:
    """A cursor in the store's history: it holds no changes of its own, however slowly it is read."""

    def __init__(self, store: LocalMetadataStore, prefix: str, after: int) -> None:
        self._store = store
        self._prefix = prefix
        self._after = after

    def __aiter__(self) -> AsyncIterator[StoreChange]:
        return self

    async def __anext__(self) -> StoreChange:
        while True:
            self._store._check_open()
            change = self._store._keyspace.next_change(self._prefix, after=self._after)
            if change is not None:
                self._after = change.revision
                return change
            await self._store._changed.wait()


_Decision = Callable[[KeyspaceOverlay], TxnOutcome]
_Reply = asyncio.Future[TxnOutcome]


class LocalMetadataStore:
    """`MetadataStore` in one process and one folder. Made by `open`."""

    max_ops = 128
    max_bytes = 1 << 20

    def __init__(
        self,
        keyspace: Keyspace,
        journal: Journal,
        *,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        on_fatal: Callable[[BaseException], object] | None,
        snapshot_after_bytes: int,
    ) -> None:
        self._keyspace = keyspace
        self._journal = journal
        self._clock = clock
        self._timers = timers
        self._executor = executor
        self._on_fatal = on_fatal
        self._snapshot_after_bytes = snapshot_after_bytes
        self._snapshot_due_bytes = snapshot_after_bytes
        self._leases: dict[int, LocalLease] = {}
        # Ids that a previous process granted must not be taken for one of ours.
        self._lease_id = clock.now_ms() << 16
        self._queue: list[tuple[_Decision, _Reply]] = []
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()
        self._refusal = ""

    @classmethod
    async def open(
        cls,
        directory: str,
        *,
        disk: Disk,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        on_fatal: Callable[[BaseException], object] | None = None,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
    ) -> LocalMetadataStore:
        """Open the store in `folder`, which is made if need be and belongs to one process at a time.

        Its parent must exist and be safe on disk: what a crash takes away above, it takes away here.
        Raises CorruptionError for damage that must not be passed over, StorageError if the disk fails.
        """
        try:
            keyspace, journal = await executor.run(_recover, disk, directory)
        except OSError as error:
            raise StorageError(f"the metadata in {directory} cannot be opened: {error}") from error
        return cls(
            keyspace,
            journal,
            clock=clock,
            timers=timers,
            executor=executor,
            on_fatal=on_fatal,
            snapshot_after_bytes=snapshot_after_bytes,
        )

    async def get(self, prefix: str, *, stale: bool = False) -> StoreView:
        """Always current: whatever was acknowledged has been applied."""
        self._check_open()
        return self._keyspace.view(prefix)

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        expect, writes = dict(expect), dict(writes)
        check_limits(expect, writes, max_ops=self.max_ops, max_bytes=self.max_bytes)
        return await self._submit(lambda draft: draft.txn(expect, writes))

    def watch(self, prefix: str, *, after: int) -> LocalWatch:
        """Raises Compacted from the iteration, and Unavailable once the store is closed or has failed."""
        return LocalWatch(self, prefix, after)

    async def lease(self, ttl: float) -> LocalLease:
        self._check_open()
        if ttl <= 0:
            raise ValueError(f"a lease lives for more than {ttl} seconds")
        self._lease_id += 1
        lease = self._leases[self._lease_id] = LocalLease(self, self._lease_id, ttl, self._clock)
        return lease

    async def close(self) -> None:
        """Finish what was asked for before, then refuse everything."""
        self._refusal = self._refusal or "the metadata store is closed"
        await self._idle.wait()
        self._end()

    async def _submit(self, decision: _Decision) -> TxnOutcome:
        self._check_open()
        reply: _Reply = asyncio.get_running_loop().create_future()
        self._queue.append((decision, reply))
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # Not at once: what else is asked for in this step of the loop shares the sync.
            self._timers.call_soon(self._proceed)
        return await reply

    def _proceed(self) -> None:
        """Start the next piece of disk work, if there is any. One at a time, so order needs no lock."""
        while self._queue:
            queue, self._queue = self._queue, []
            draft = KeyspaceOverlay(self._keyspace, self._leases)
            decided: list[tuple[_Reply, TxnOutcome | MetadataStoreError]] = []
            for decision, reply in queue:
                if reply.done():
                    continue  # given up by its caller before it was decided
                try:
                    decided.append((reply, decision(draft)))
                except MetadataStoreError as error:
                    decided.append((reply, error))
            if draft.changes:
                self._executor.submit(
                    partial(self._journal.append, draft.changes), partial(self._appended, draft, decided)
                )
                return
            self._apply(draft, decided)
        self._busy = False
        self._idle.set()

    def _appended(
        self,
        draft: KeyspaceOverlay,
        decided: Sequence[tuple[_Reply, TxnOutcome | MetadataStoreError]],
        _: None,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            self._fail(error, [reply for reply, _ in decided])
            return
        self._apply(draft, decided)
        if self._journal.size_bytes >= self._snapshot_due_bytes:
            # Nothing is applied while the snapshot is written, so it needs no copy of the items.
            self._executor.submit(
                partial(self._journal.snapshot, self._keyspace.revision, self._keyspace.items),
                self._snapshot_written,
            )
        else:
            self._proceed()

    def _snapshot_written(self, size_bytes: int | None, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error, [])
            return
        # In proportion to the items, so that a large store does not rewrite itself all the time.
        self._snapshot_due_bytes = max(self._snapshot_after_bytes, 2 * (size_bytes or 0))
        self._proceed()

    def _apply(
        self, draft: KeyspaceOverlay, decided: Sequence[tuple[_Reply, TxnOutcome | MetadataStoreError]]
    ) -> None:
        for change in draft.changes:
            self._keyspace.apply(change)
        for lease_id in draft.revoked:
            lease = self._leases.pop(lease_id, None)
            if lease is not None:
                lease._end()
        if draft.changes:
            self._wake_watches()
        for reply, outcome in decided:
            if reply.done():
                continue
            if isinstance(outcome, TxnOutcome):
                reply.set_result(outcome)
            else:
                reply.set_exception(outcome)

    def _fail(self, error: BaseException, on_the_way: Sequence[_Reply]) -> None:
        log.critical("the metadata store failed and serves nothing from now on: %s", error)
        self._refusal = f"the metadata store failed: {error}"
        waiting = [reply for _, reply in self._queue]
        self._queue.clear()
        for reply in on_the_way:
            if not reply.done():
                reply.set_exception(OutcomeUncertain(f"the change may or may not be on disk: {error}"))
        for reply in waiting:
            if not reply.done():
                reply.set_exception(StoreUnavailable(self._refusal))
        self._end()
        self._idle.set()
        if self._on_fatal is not None:
            self._on_fatal(error)

    def _end(self) -> None:
        self._journal.close()
        for lease in self._leases.values():
            lease._end()
        self._leases.clear()
        self._wake_watches()

    def _wake_watches(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _check_open(self) -> None:
        if self._refusal:
            raise StoreUnavailable(self._refusal)


def _recover(disk: Disk, directory: str) -> tuple[Keyspace, Journal]:
    """Read the files and drop the items whose leases ended with the process that held them."""
    journal, recovered = Journal.open(disk, directory)
    keyspace = Keyspace(recovered)
    leased: dict[str, StoreItem | None] = {
        key: None for key, item in keyspace.view("").items.items() if item.lease
    }
    if leased:
        dropped = StoreChange(keyspace.revision + 1, leased)
        try:
            journal.append([dropped])
        except BaseException:
            journal.close()
            raise
        keyspace.apply(dropped)
    return keyspace, journal


def check_limits(
    expect: Mapping[str, int], writes: Mapping[str, Put | None], *, max_ops: int, max_bytes: int
) -> None:
    """Raise TransactionTooLarge for a transaction beyond the limits of its store."""
    if len(expect) > max_ops or len(writes) > max_ops:
        raise TransactionTooLarge(
            f"{len(expect)} comparisons and {len(writes)} writes; a transaction has {max_ops} at most"
        )
    size = sum(len(key.encode()) for key in expect)
    size += sum(len(key.encode()) + (len(put.value) if put else 0) for key, put in writes.items())
    if size > max_bytes:
        raise TransactionTooLarge(f"{size} bytes; a transaction has {max_bytes} at most")


def _change_bytes(change: StoreChange) -> int:
    return sum(len(key) + (len(item.value) if item else 0) for key, item in change.items.items())
