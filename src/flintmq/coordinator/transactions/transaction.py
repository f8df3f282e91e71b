"""One transactional id: its producer, its state, and the steps from one state to the next.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit
      ▲          └──────► PrepareAbort ───► CompleteAbort
      └── a producer that initializes, from Empty and the Complete states

A transaction in a Prepare state is decided: only its completion follows, and everything else has to wait. A step is a
new value; the old one stays what it was, so a step that is never written has never happened.

Two generations of clients end a transaction differently. With the first, the producer keeps its epoch. With the
second (KIP-890) each end bumps it, so that a request of an earlier transaction is known by its epoch; when the epochs
of a producer id run out, the completion passes to `next_producer_id`.

Nothing here knows requests, error codes or bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from flintmq.records.topic_partition import TopicPartition

EPOCH_MAX: Final = 32767
"""Never a client's: the coordinator keeps it to be able to fence the client that has the one below."""
LAST_CLIENT_EPOCH: Final = EPOCH_MAX - 1
EPOCH_BUMP_VERSION: Final = 2
"""The first level of `transaction.version` at which each end of a transaction bumps the epoch."""
NEVER_TIMES_OUT_MS: Final = 2**31 - 1


class TransactionState(IntEnum):
    """Kafka's states, by the numbers that stand in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """An id that expires. Never written: its record is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """A producer that is being fenced. Never written: its transaction goes to PrepareAbort in the same step."""

    @property
    def title(self) -> str:
        """As clients spell it."""
        return _TITLES[self]


_TITLES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}


def is_exhausted(epoch: int) -> bool:
    """No client may be given an epoch after this one."""
    return epoch >= LAST_CLIENT_EPOCH


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last step; the same one, unless that step changed it."""
    next_producer_id: int = NO_PRODUCER_ID
    """Whom a decided transaction passes to when it is complete, because this producer's epochs have run out."""
    last_epoch: int = NO_EPOCH
    """The epoch before the last bump, by which a repeated request is known (KIP-360). Not in records: a coordinator
    that was loaded does not know it."""
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = 0
    """The transaction version of the client that took the last step of the transaction."""

    # ---- questions

    @property
    def is_decided(self) -> bool:
        """Its end is written and its markers are on their way."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def due_ms(self) -> int | None:
        """The first millisecond at which it has lasted too long; None if that never comes."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_TIMES_OUT_MS:
            return None
        return self.start_ms + self.timeout_ms + 1

    def may_expire(self, now_ms: int, expiration_ms: int) -> bool:
        """Nothing is under way, and nobody has used the id for so long."""
        idle = self.state in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )
        return idle and self.last_update_ms <= now_ms - expiration_ms

    # ---- steps

    def initialized(self, epoch: int, last_epoch: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer has the id from now on, with this epoch of the same producer id."""
        return self._replace(
            previous_producer_id=self.producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def rotated(self, producer_id: int, last_epoch: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        """The same with a new producer id, whose epochs begin again."""
        return self.initialized(0, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)._replace(
            producer_id=producer_id
        )

    def added(self, partitions: Iterable[TopicPartition], *, client_version: int, now_ms: int) -> Transaction:
        """More partitions take part; the first ones begin the transaction."""
        return self._replace(
            previous_producer_id=self.producer_id,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def decided(
        self, *, committed: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        """Its end is certain. One that never began can be aborted too; it has then lasted from now on."""
        bumps = client_version >= EPOCH_BUMP_VERSION
        return self._replace(
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            epoch=min(self.epoch + 1, EPOCH_MAX) if bumps else self.epoch,
            last_epoch=self.epoch if bumps else self.last_epoch,
            state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, *, server_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Aborted without its producer being asked, which can do nothing more under its epoch."""
        if server_version >= EPOCH_BUMP_VERSION:
            return self.decided(
                committed=False,
                client_version=server_version,
                next_producer_id=next_producer_id,
                now_ms=now_ms,
            )
        return self._replace(epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=NO_EPOCH).decided(
            committed=False, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )

    def completed(self, now_ms: int) -> Transaction:
        """All its markers are written."""
        passes_on = self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID
        return self._replace(
            producer_id=self.next_producer_id if passes_on else self.producer_id,
            epoch=0 if passes_on else self.epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
