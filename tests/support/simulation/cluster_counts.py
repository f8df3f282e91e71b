"""Counts what happens to the partitions of a simulated cluster, by the changes of its metadata store."""

from __future__ import annotations

from collections import Counter

from flintmq.metadata import keys
from flintmq.metadata.image import is_internal
from flintmq.metadata.store import StoreChange
from flintmq.testing.simulation.store import SimulatedStore


class ClusterCounts:
    """Elections, changes of ISRs, and moves of coordinators."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self.counts: Counter[str] = Counter()
        store.observers.append(self._changed)

    def topic_ids(self) -> dict[str, str]:
        """Return the names of topics by their ids, as in the keys of partitions."""
        return {
            keys.decode_topic(item.value).id: key.removeprefix(keys.TOPICS)
            for key, item in self._store.items.items()
            if key.startswith(keys.TOPICS)
        }

    def _changed(self, change: StoreChange) -> None:
        for key, item in change.items.items():
            before = self._store.items.get(key)
            if not key.startswith(keys.PARTITIONS) or item is None or before is None:
                continue
            old, new = keys.decode_partition(before.value), keys.decode_partition(item.value)
            if new.epoch > old.epoch and new.leader >= 0:
                self.counts["elections"] += 1
                if new.leader != old.leader and is_internal(self.topic_ids().get(key.split("/")[2], "")):
                    self.counts["coordinator moves"] += 1
            if set(new.isr) < set(old.isr):
                self.counts["ISR shrinks"] += 1
            if set(new.isr) > set(old.isr):
                self.counts["ISR expansions"] += 1
