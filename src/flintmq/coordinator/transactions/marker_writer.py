"""Writes the markers of transactions to partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.effects import Clock
from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.metrics import TransactionCounters
from flintmq.partitions.leadership import led_partition
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.records.markers import Marker

Done = Callable[[ErrorCode], object]


class MarkerWriter:
    def __init__(
        self,
        partitions: LocalPartitions,
        groups: Coordinator[GroupMachine],
        clock: Clock,
        counters: TransactionCounters | None = None,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self.counters = counters or TransactionCounters()

    def is_awaited(self, topic: str, index: int, producer_id: int) -> bool:
        """Return whether a transaction of that producer is open there."""
        partition = self._partitions.get(topic, index)
        return partition is not None and partition.log.producers.is_in_transaction(producer_id)

    def write(self, topic: str, index: int, marker: Marker, *, bumps_epoch: bool, done: Done) -> None:
        """Write a marker. `done` is called with NONE once it is visible, or with what prevented that."""
        # Groups must learn which of their offsets count from now on.
        shard = self._groups.shard_at(index) if topic == self._groups.topic else None
        try:
            partition = led_partition(self._partitions, topic, index)
            if shard is not None:
                appended = shard.end_transaction(marker, bumps_epoch=bumps_epoch)
            else:
                appended = partition.append_marker(marker, self._clock.now_ms(), bumps_epoch=bumps_epoch)
        except (FlintError, OSError) as error:
            done(error_code_of(error))
            return
        if marker.committed:
            self.counters.markers_committed += 1
        else:
            self.counters.markers_aborted += 1
        if partition.is_visible(appended.last_offset):
            done(ErrorCode.NONE)
        else:
            partition.when_visible(
                appended.last_offset,
                lambda failure: done(ErrorCode.NONE if failure is None else ErrorCode.KAFKA_STORAGE_ERROR),
            )
