"""Who may take which step: the checks of Kafka's coordinator, each giving the transaction after the step.

A step that was taken before and is only asked for again gives back the very same transaction: there is nothing to
write, and the answer is yes. What is refused raises RequestError with Kafka's code for the newest version of the
request. The order of the checks is Kafka's too, for clients act on which of two errors they get: a transaction that
is decided makes everybody wait before it is asked who they are, because the producer may already use an epoch or a
producer id that only the completion brings.

    end, second generation     abort by           commit by
                               before   current   before   current      before: the epoch of the last end
      Empty                    fenced   abort     fenced   invalid      abort:  an empty transaction is aborted
      CompleteAbort            again    abort     invalid  invalid      again:  the same answer, nothing written
      CompleteCommit           invalid  abort     again    invalid
"""

from __future__ import annotations

from collections.abc import Collection

from flintmq.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    LAST_CLIENT_EPOCH,
    Transaction,
    TransactionState,
    is_exhausted,
)
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID
from flintmq.records.topic_partition import TopicPartition


def initialize(
    transaction: Transaction,
    expected: tuple[int, int] | None,
    *,
    timeout_ms: int,
    server_version: int,
    new_producer_id: int,
    now_ms: int,
) -> Transaction:
    """A producer takes the transactional id; `expected` is what it had before (KIP-360).

    An ongoing transaction is aborted first, which the transaction that comes back shows by being decided: the caller
    has to ask again. That epoch is nobody's, so asking again bumps it a second time.
    """
    _wait_if_decided(transaction)
    if expected is not None and not _may_continue(transaction, *expected):
        raise RequestError(ErrorCode.PRODUCER_FENCED, "Another producer has the transactional id.")
    if transaction.state is TransactionState.ONGOING:
        return fence(
            transaction, server_version=server_version, new_producer_id=new_producer_id, now_ms=now_ms
        )
    epoch, expected_epoch = transaction.epoch, None if expected is None else expected[1]
    is_new = epoch == NO_EPOCH
    if expected_epoch is None or is_new or expected_epoch == epoch:
        last_epoch = NO_EPOCH if expected_epoch is None else epoch
        if transaction.is_exhausted:
            return transaction.rotated(
                given(new_producer_id), last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
            )
        return transaction.initialized(epoch + 1, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
    if expected_epoch == transaction.last_epoch:
        # It asks again. Another producer in between would have forgotten the last epoch.
        return transaction.initialized(epoch, expected_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
    raise RequestError(ErrorCode.PRODUCER_FENCED, f"Epoch {expected_epoch} is not the newest, {epoch}.")


def _may_continue(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """The epoch is looked at later, but for one that has run out: its producer id may be the one before."""
    if transaction.epoch == NO_EPOCH or producer_id == transaction.producer_id:
        return True
    return producer_id == transaction.previous_producer_id and is_exhausted(epoch)


def add(
    transaction: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Partitions take part from now on."""
    known = _known(transaction)
    _wait_if_decided(known)
    _check_producer(known, producer_id, epoch)
    if known.state is TransactionState.ONGOING and known.partitions.issuperset(partitions):
        return known
    return known.added(partitions, client_version=client_version, now_ms=now_ms)


def verify(transaction: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """The producer may write in its transaction, to the partitions that take part in it."""
    known = _known(transaction)
    _check_producer(known, producer_id, epoch)
    _wait_if_decided(known)
    return known


def end_keeping_epoch(
    transaction: Transaction | None, producer_id: int, epoch: int, *, committed: bool, now_ms: int
) -> Transaction:
    """The end as clients of the first generation ask for it."""
    known = _known(transaction)
    _check_producer(known, producer_id, epoch)
    _wait_if_decided(known)
    if known.state is TransactionState.ONGOING:
        return known.decided(
            committed=committed, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )
    if known.state is (TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT):
        return known
    raise _invalid(known, committed=committed)


def end_bumping_epoch(
    transaction: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    committed: bool,
    new_producer_id: int,
    now_ms: int,
) -> Transaction:
    """The end as clients of the second generation ask for it (KIP-890): the table above."""
    known = _known(transaction)
    _wait_if_decided(known)
    # An end that did not bump the epoch has nothing to do with the epoch before: whoever has that one is fenced.
    has_bumped = known.bumps_epoch and known.state in (
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    overflowed = producer_id == known.previous_producer_id and epoch == LAST_CLIENT_EPOCH and known.epoch == 0
    again = epoch + 1 == known.epoch or overflowed
    if producer_id != known.producer_id and not overflowed:
        raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"Producer {producer_id} has not the id.")
    if epoch != known.epoch and not (has_bumped and again):
        raise RequestError(ErrorCode.PRODUCER_FENCED, f"Epoch {epoch} is not the newest, {known.epoch}.")
    if has_bumped and again:
        if known.state is (
            TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        ):
            return known
        raise _invalid(known, committed=committed)
    if committed and known.state is not TransactionState.ONGOING:
        raise _invalid(known, committed=committed)
    return known.decided(
        committed=committed,
        client_version=EPOCH_BUMP_VERSION,
        next_producer_id=given(new_producer_id) if known.is_exhausted else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def fence(transaction: Transaction, *, server_version: int, new_producer_id: int, now_ms: int) -> Transaction:
    """An ongoing transaction is aborted by somebody else than its producer."""
    _wait_if_decided(transaction)
    if transaction.state is not TransactionState.ONGOING:
        raise _invalid(transaction, committed=False)
    rotates = server_version >= EPOCH_BUMP_VERSION and transaction.is_exhausted
    return transaction.fenced(
        server_version=server_version,
        next_producer_id=given(new_producer_id) if rotates else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _known(transaction: Transaction | None) -> Transaction:
    if transaction is None:
        raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Nobody has this transactional id.")
    return transaction


def _wait_if_decided(transaction: Transaction) -> None:
    if transaction.is_decided:
        raise RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, "The transaction before is not complete yet.")


def _check_producer(transaction: Transaction, producer_id: int, epoch: int) -> None:
    if producer_id != transaction.producer_id:
        raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"Producer {producer_id} has not the id.")
    if epoch != transaction.epoch:
        raise RequestError(
            ErrorCode.PRODUCER_FENCED, f"Epoch {epoch} is not the newest, {transaction.epoch}."
        )


def given(producer_id: int) -> int:
    """The state has changed since the caller asked whether a producer id would be needed: it has to ask again."""
    if producer_id == NO_PRODUCER_ID:
        raise RequestError(ErrorCode.CONCURRENT_TRANSACTIONS, "A new producer id is needed first.")
    return producer_id


def _invalid(transaction: Transaction, *, committed: bool) -> RequestError:
    asked = "commit" if committed else "abort"
    return RequestError(
        ErrorCode.INVALID_TXN_STATE, f"Nothing can {asked} a transaction that is {transaction.state.title}."
    )
