"""What must hold of replicas all the time, whether a client could see it or not.

A member of an ISR has everything that is committed, and the same of it; a follower takes over only what its leader
has, and removes only what its leader does not have. The checker of histories sees a breach only if the replica is
elected before it has caught up. This looks at the logs themselves, each time the metadata store commits a larger ISR,
and each time a follower writes to its log or truncates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from flintmq.metadata import keys
from flintmq.metadata.keys import PartitionValue
from flintmq.metadata.store import StoreChange
from flintmq.records.uuids import encode_uuid
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.log import Log
from flintmq.storage.truncation.truncation import Truncation
from flintmq.testing.simulation.store import SimulatedStore
from flintmq.testing.simulation.world import World


class ReplicaInvariants:
    def __init__(self, world: World, store: SimulatedStore) -> None:
        self._world = world
        self._store = store
        self.breaches: list[str] = []
        store.observers.append(self._changed)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at what followers write and truncate, too."""
        begin, append = Log.begin_truncation, Log.append_replicated

        def observed(log: Log, offset: int, now_ms: int) -> Truncation | None:
            epochs = LeaderEpochs.decode(log.epochs.encode())
            truncation = begin(log, offset, now_ms)
            if truncation is not None:
                self._truncated(log, epochs)
            return truncation

        def observed_append(log: Log, data: memoryview, now_ms: int) -> int:
            end = append(log, data, now_ms)
            if len(data):
                self._appended(log)
            return end

        with (
            patch.object(Log, "begin_truncation", observed),
            patch.object(Log, "append_replicated", observed_append),
        ):
            yield

    def _appended(self, log: Log) -> None:
        key = keys.partition(log.topic_id, log.partition)
        item = self._store.items.get(key)
        if item is None:
            return
        value, last = keys.decode_partition(item.value), log.end_offset - 1
        leader = self._log(key, value.leader)
        if leader is None or not self._is_leader_current(value):
            return
        if leader.end_offset <= last or leader.epochs.epoch_of(last) != log.epochs.epoch_of(last):
            for node in self._followers(value, log):
                self.breaches.append(
                    f"broker {node} writes offset {last} of {key}, which its leader does not have"
                )

    def _is_leader_current(self, value: PartitionValue) -> bool:
        epochs = dict(zip(value.isr, value.isr_epochs, strict=False))
        return value.leader in epochs and self._is_current(value.leader, epochs[value.leader])

    def _followers(self, value: PartitionValue, log: Log) -> list[int]:
        """Return the broker of a log, if it follows the leader that the store names."""
        found = []
        for node in value.replicas:
            core = self._world.brokers[node].core
            partition = None if core is None else core.partitions.by_id.get((log.topic_id, log.partition))
            if (
                partition is not None
                and partition.log is log
                and (partition.leader, partition.leader_epoch) == (value.leader, value.epoch)
            ):
                found.append(node)
        return found

    def _truncated(self, log: Log, epochs_before: LeaderEpochs) -> None:
        key = keys.partition(log.topic_id, log.partition)
        item = self._store.items.get(key)
        if item is None:
            return
        value = keys.decode_partition(item.value)
        leader = self._log(key, value.leader)
        if leader is None:
            return
        self._check_removed(key, value, leader, log, epochs_before)
        if log.end_offset >= leader.high_watermark:
            return
        for node, epoch in zip(value.isr, value.isr_epochs, strict=False):
            if self._is_current(node, epoch) and self._log(key, node) is log:
                self.breaches.append(
                    f"broker {node} is in the ISR of {key}, truncates its log to {log.end_offset}, and "
                    f"{leader.high_watermark} records are committed"
                )

    def _check_removed(
        self, key: str, value: PartitionValue, leader: Log, log: Log, epochs_before: LeaderEpochs
    ) -> None:
        """What a follower removes, its leader does not have; a response of an earlier leader may say otherwise."""
        end = log.end_offset
        if leader.end_offset <= end or leader.epochs.epoch_of(end) != epochs_before.epoch_of(end):
            return
        for node in self._followers(value, log):
            self.breaches.append(
                f"broker {node} truncates its log of {key} to {end}, and its leader has the same record there"
            )

    def _is_current(self, node: int, epoch: int) -> bool:
        """Whether a broker runs under this epoch. One that has restarted is no member of an ISR that names it."""
        core = self._world.brokers[node].core
        return core is not None and core.cluster is not None and core.cluster.broker_epoch == epoch

    def _changed(self, change: StoreChange) -> None:
        for key, item in change.items.items():
            before = self._store.items.get(key)
            if not key.startswith(keys.PARTITIONS) or item is None or before is None:
                continue
            old, new = keys.decode_partition(before.value), keys.decode_partition(item.value)
            if new.leader == old.leader and new.epoch == old.epoch:
                for node, epoch in zip(new.isr, new.isr_epochs, strict=False):
                    if node not in old.isr:
                        self._check(key, new, node, epoch)

    def _check(self, key: str, value: PartitionValue, node: int, epoch: int) -> None:
        leader, follower = self._log(key, value.leader), self._log(key, node)
        if leader is None or follower is None or not self._is_current(node, epoch):
            return
        committed = leader.high_watermark
        if follower.end_offset < committed:
            self.breaches.append(
                f"broker {node} enters the ISR of {key} with {follower.end_offset} of {committed} records"
            )
        elif committed > max(leader.start_offset, follower.start_offset):
            epochs = leader.epochs.epoch_of(committed - 1), follower.epochs.epoch_of(committed - 1)
            if epochs[0] != epochs[1]:
                self.breaches.append(
                    f"broker {node} enters the ISR of {key} with another record at {committed - 1}: {epochs}"
                )

    def _log(self, key: str, node: int) -> Log | None:
        core = None if node < 0 else self._world.brokers[node].core
        if core is None:
            return None
        _, _, topic_id, index = key.split("/")
        for (_, number), log in core.log_dir.logs.items():
            if number == int(index) and encode_uuid(log.topic_id) == topic_id:
                return log
        return None
