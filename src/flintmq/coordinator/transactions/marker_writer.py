"""Writes the markers of transactions to their partitions: here, or through the brokers that lead them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.coordinator.transactions.remote_markers import RemoteMarker, RemoteMarkers
from flintmq.coordinator.transactions.transaction import EPOCH_BUMP_VERSION
from flintmq.effects import Clock
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metrics import TransactionCounters
from flintmq.partitions.leadership import led_partition
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import NO_LEADER, Role
from flintmq.records.markers import Marker

Done = Callable[[ErrorCode], object]


class MarkerWriter:
    def __init__(
        self,
        partitions: LocalPartitions,
        groups: Coordinator[GroupMachine],
        clock: Clock,
        counters: TransactionCounters | None = None,
        remote: RemoteMarkers | None = None,
    ) -> None:
        """`remote` reaches the partitions that other brokers lead; None on a standalone broker."""
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._remote = remote
        self._hidden: dict[tuple[str, int, Marker], list[Done]] = {}
        """Markers that are in their logs here and not visible yet, with those who wait for them."""
        self.counters = counters or TransactionCounters()

    def is_awaited(self, topic: str, index: int, producer_id: int) -> bool:
        """Return whether a transaction of that producer may be open there."""
        partition = self._partitions.get(topic, index)
        if partition is None or partition.role is not Role.LEADER:
            # What another broker's partition holds is not known here.
            return self._remote is not None and self._partitions.image.has_partition(topic, index)
        return partition.log.producers.is_in_transaction(producer_id)

    def write(self, topic: str, index: int, marker: Marker, *, transaction_version: int, done: Done) -> None:
        """Write a marker, wherever its partition is led.

        `done` is called with NONE once the marker is visible, with UNKNOWN_TOPIC_OR_PARTITION if the partition does
        not exist any more, or with what prevented the write.
        """
        partition = self._partitions.get(topic, index)
        if self._remote is not None and (partition is None or partition.role is not Role.LEADER):
            self._write_elsewhere(self._remote, topic, index, marker, transaction_version, done)
        else:
            self.write_here(topic, index, marker, transaction_version=transaction_version, done=done)

    def _write_elsewhere(
        self, remote: RemoteMarkers, topic: str, index: int, marker: Marker, version: int, done: Done
    ) -> None:
        image = self._partitions.image
        if not image.has_partition(topic, index):
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        leader = image.topics[topic].partitions[index].leader
        if leader in (NO_LEADER, self._partitions.node_id):
            # An election is under way.
            done(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            remote.write(leader, RemoteMarker((topic, index), marker, version, done))

    def write_here(
        self, topic: str, index: int, marker: Marker, *, transaction_version: int, done: Done
    ) -> None:
        """Write a marker to a partition that this broker leads, or call `done` with the reason why not.

        A coordinator that asks again before the marker is visible gets no second one.
        """
        hidden = self._hidden.get((topic, index, marker))
        if hidden is not None and not self.is_awaited(topic, index, marker.producer_id):
            hidden.append(done)
            return
        bumps_epoch = transaction_version >= EPOCH_BUMP_VERSION
        # Groups must learn which of their offsets count from now on.
        shard = self._groups.shard_at(index) if topic == self._groups.topic else None
        try:
            partition = led_partition(self._partitions, topic, index)
            if not partition.has_min_isr:
                raise RequestError(
                    ErrorCode.NOT_ENOUGH_REPLICAS, f"Too few replicas of {partition.log.name} are in sync."
                )
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
            name = topic, index, marker
            self._hidden.setdefault(name, []).append(done)
            partition.when_visible(appended.last_offset, partial(self._settle, name))

    def _settle(self, name: tuple[str, int, Marker], failure: FlintError | None) -> None:
        code = ErrorCode.NONE if failure is None else error_code_of(failure)
        for done in self._hidden.pop(name, []):
            done(code)
