"""The metadata store of a simulated cluster: one keyspace, a session for each process that uses it.

The store itself never fails; what lies between it and a session does. Requests and responses travel on pipes, so that
they are late, lost, or applied long after the session has given up. Leases expire by the world's time, unless their
session renews them. Invariant: transactions are decided one after the other, and applied when they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from flintmq.errors import MetadataStoreError
from flintmq.metadata.journal import RecoveredJournal
from flintmq.metadata.local_store import Keyspace, KeyspaceOverlay
from flintmq.metadata.store import Put, RevisionCompacted, StoreChange, StoreItem, StoreView, TxnOutcome
from flintmq.testing.simulation.process import SimulatedProcess
from flintmq.testing.simulation.store_session import StoreSession
from flintmq.testing.simulation.timeline import TimelineEvent
from flintmq.testing.simulation.wires import Wires

Respond = Callable[[Any], object]


class TxnFault(Enum):
    """What becomes of a transaction."""

    UNAVAILABLE = "unavailable"
    """StoreUnavailable; it is not applied."""
    LOST = "lost"
    """OutcomeUncertain; it is not applied."""
    APPLIED = "applied"
    """OutcomeUncertain; it is applied."""
    LATE = "late"
    """OutcomeUncertain; it is applied, or decided against, some time after."""


class _GrantedLease:
    def __init__(self, lease_id: int, ttl_s: float, owner: str) -> None:
        self.id = lease_id
        self.ttl_s = ttl_s
        self.owner = owner
        self.expiry: TimelineEvent | None = None


class _WaitingWatch(NamedTuple):
    prefix: str
    after: int
    respond: Respond


class SimulatedStore:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self._keyspace = Keyspace(RecoveredJournal(0, {}, []))
        self._leases: dict[int, _GrantedLease] = {}
        self._last_lease_id = 0
        self._watches: dict[int, _WaitingWatch] = {}
        self._last_watch_id = 0
        self._faults: dict[str, list[TxnFault]] = {}
        self.uncertain_count = 0
        """Transactions whose sessions did not learn their outcome."""
        self.observers: list[Callable[[StoreChange], object]] = []
        """Called with each change, before it is applied."""

    def open(self, process: SimulatedProcess, machine: str, *, timeout_s: float = 5.0) -> StoreSession:
        """Open a session for a process; `machine` is the end of its link."""
        return StoreSession(self, process, machine, timeout_s=timeout_s)

    # ---- faults

    def fail_next(self, machine: str, fault: TxnFault) -> None:
        """Let the next transaction of this machine fail."""
        self._faults.setdefault(machine, []).append(fault)

    def take_fault(self, machine: str) -> TxnFault | None:
        faults = self._faults.get(machine)
        return faults.pop(0) if faults else None

    def expire_leases(self, machine: str) -> None:
        """Let all leases of a machine be lost, though it lives."""
        for lease in [lease for lease in self._leases.values() if lease.owner == machine]:
            self.revoke(lease.id)

    def compact(self) -> None:
        """Forget the history: watches that are behind must begin again."""
        self._note("compact")
        self._keyspace.forget_history()

    def backup(self) -> StoreView:
        return self._keyspace.view("")

    def restore(self, backup: StoreView) -> None:
        """Become as the store was at a backup. Revisions go back; all leases are gone."""
        self._note(f"restore revision {backup.revision}")
        for lease in list(self._leases.values()):
            self._forget_lease(lease)
        self._keyspace = Keyspace(RecoveredJournal(backup.revision, dict(backup.items), []))
        held: dict[str, StoreItem | None] = {key: None for key, item in backup.items.items() if item.lease}
        if held:
            self._keyspace.apply(StoreChange(backup.revision + 1, held))
        self._notify()

    @property
    def items(self) -> Mapping[str, StoreItem]:
        return self._keyspace.items

    # ---- requests, as they arrive from sessions

    def view(self, prefix: str) -> StoreView:
        return self._keyspace.view(prefix)

    def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        draft = KeyspaceOverlay(self._keyspace, self._leases)
        outcome = draft.txn(expect, writes)
        self._note(f"txn {list(writes)} {outcome.committed} {outcome.revision}")
        self._apply(draft)
        return outcome

    def grant(self, ttl_s: float, owner: str) -> int:
        self._last_lease_id += 1
        lease = self._leases[self._last_lease_id] = _GrantedLease(self._last_lease_id, ttl_s, owner)
        self._note(f"grant {lease.id} to {owner}")
        self.renew(lease.id)
        return lease.id

    def renew(self, lease_id: int) -> bool:
        """Return whether the lease lives."""
        lease = self._leases.get(lease_id)
        if lease is None:
            return False
        if lease.expiry is not None:
            lease.expiry.cancel()
        lease.expiry = self.wires.timeline.after(lease.ttl_s, lambda: self.revoke(lease_id))
        return True

    def revoke(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            self._note(f"end of lease {lease_id} of {lease.owner}")
            draft = KeyspaceOverlay(self._keyspace, self._leases)
            draft.revoke(lease_id)
            self._forget_lease(lease)
            self._apply(draft)

    def watch_id(self) -> int:
        self._last_watch_id += 1
        return self._last_watch_id

    def poll(self, watch_id: int, prefix: str, after: int, respond: Respond) -> None:
        """Respond with the next change, as soon as there is one. A second poll of a watch replaces the first."""
        self._watches[watch_id] = _WaitingWatch(prefix, after, respond)
        self._serve(watch_id)

    def end_poll(self, watch_id: int) -> None:
        self._watches.pop(watch_id, None)

    # ----

    def _apply(self, draft: KeyspaceOverlay) -> None:
        for change in draft.changes:
            for observe in self.observers:
                observe(change)
            self._keyspace.apply(change)
        if draft.changes:
            self._notify()

    def _notify(self) -> None:
        for watch_id in list(self._watches):
            self._serve(watch_id)

    def _serve(self, watch_id: int) -> None:
        prefix, after, respond = self._watches[watch_id]
        found: StoreChange | MetadataStoreError | None
        try:
            found = self._keyspace.next_change(prefix, after=after)
        except RevisionCompacted as error:
            found = error
        if found is not None:
            del self._watches[watch_id]
            respond(found)

    def _forget_lease(self, lease: _GrantedLease) -> None:
        if lease.expiry is not None:
            lease.expiry.cancel()
        self._leases.pop(lease.id, None)

    def _note(self, text: str) -> None:
        self.wires.trace.note(f"store: {text}")
