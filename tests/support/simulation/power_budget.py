"""Which machines may lose what they have not synced, without breaking what replication promises.

An acknowledged record is in the log of every member of ISR and ELR. So a machine may lose records if each partition
keeps another member that has lost none since it was recorded. Topics that sync each record are exempt.
"""

from __future__ import annotations

from collections.abc import Collection

from flintmq.cluster.elections import eligible_leader_replicas, in_sync
from flintmq.metadata import keys
from flintmq.testing.simulation.store import SimulatedStore


class PowerBudget:
    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._lost_at: dict[int, int] = {}
        """The revision of the store at which a machine lost records last."""
        self.synced_topics: Collection[str] = ()
        """Ids of topics whose records are on stable storage before they are acknowledged."""

    def may_lose(self, node: int) -> bool:
        for key, item in self._store.items.items():
            if not key.startswith(keys.PARTITIONS) or key.split("/")[2] in self.synced_topics:
                continue
            value = keys.decode_partition(item.value)
            held = {**eligible_leader_replicas(value), **in_sync(value)}
            if len(value.replicas) > 1 and not any(
                other != node and epoch > self._lost_at.get(other, -1) for other, epoch in held.items()
            ):
                return False
        return True

    def take(self, node: int) -> bool:
        """Return whether the machine may lose records, and count it as one that does."""
        if not self.may_lose(node):
            return False
        self._lost_at[node] = self._store.backup().revision
        return True
