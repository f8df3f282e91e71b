"""What the coordinator decides beyond records, replies and timers: the markers to be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.coordinator.runtime.machine import Decision
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.records.topic_partition import TopicPartition


class MarkerWork(NamedTuple):
    """A decided transaction, and the partitions that have to be told. When all of them have been, `markers_written`
    completes it; without any partition that is at once."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: list[TopicPartition]
    """Sorted."""
    transaction_version: int
    """From 2 on a marker's epoch is higher than that of the records it ends."""


@dataclass(slots=True)
class TransactionDecision(Decision):
    markers: list[MarkerWork] = field(default_factory=list)
    """ORDER: written when the high watermark has passed the decision's own records, never if these failed."""
    wants_producer_id: list[str] = field(default_factory=list)
    """Transactional ids whose time-out has to wait for a new producer id: to be told by `time_out`."""

    def join(self, other: Decision) -> Decision:
        # By name: a dataclass with slots is made anew, which a bare `super()` does not know.
        Decision.join(self, other)
        if isinstance(other, TransactionDecision):
            self.markers += other.markers
            self.wants_producer_id += other.wants_producer_id
        return self


def markers_of(transaction: Transaction, coordinator_epoch: int) -> list[MarkerWork]:
    """The work that a transaction stands for: none, unless it is decided."""
    if not transaction.is_decided:
        return []
    return [
        MarkerWork(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.epoch,
            coordinator_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            sorted(transaction.partitions),
            transaction.client_version,
        )
    ]
