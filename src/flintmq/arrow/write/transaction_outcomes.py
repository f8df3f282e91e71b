"""What became of the transactions that a decision names, and what follows from it for the batch. Pure.

    open        as it was left: it can be committed or aborted
    committed   its records are there
    aborted     its records are not there: the broker ended it because nobody did in time
    unknown     its transactional id was used again, or is forgotten

A decision is carried out wholly or not at all: only if nothing of it is lost is the rest committed, and only if
nothing of it is committed is the batch written anew. What is neither is torn, and somebody has to be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from flintmq.client.admin.transactions import DescribedTransaction
from flintmq.client.transaction import OpenedTransaction

_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
_ABORTED: Final = ("PrepareAbort", "CompleteAbort")


class TransactionOutcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class BatchVerdict(Enum):
    COMMIT = "commit"
    """What is open is to be committed; it may be nothing any more."""
    REWRITE = "rewrite"
    """Nothing is committed, and not all of it can be."""
    TORN = "torn"
    """A part is committed and a part is lost, or nobody can tell."""


def outcome_of(transaction: OpenedTransaction, described: DescribedTransaction | None) -> TransactionOutcome:
    if described is None or described.producer_id != transaction.producer_id:
        return TransactionOutcome.UNKNOWN
    if described.state == "Ongoing" and described.epoch == transaction.epoch:
        return TransactionOutcome.OPEN
    # Its end bumps the epoch by one. One that is further on belongs to whoever took the id since.
    if described.epoch == transaction.epoch + 1:
        if described.state in _COMMITTED:
            return TransactionOutcome.COMMITTED
        if described.state in _ABORTED:
            return TransactionOutcome.ABORTED
    return TransactionOutcome.UNKNOWN


def outcomes_of(
    transactions: Iterable[OpenedTransaction], described: Mapping[str, DescribedTransaction]
) -> dict[OpenedTransaction, TransactionOutcome]:
    return {one: outcome_of(one, described.get(one.id)) for one in transactions}


def judge(outcomes: Collection[TransactionOutcome]) -> BatchVerdict:
    lost = any(outcome in (TransactionOutcome.ABORTED, TransactionOutcome.UNKNOWN) for outcome in outcomes)
    if not lost:
        return BatchVerdict.COMMIT
    if any(outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.UNKNOWN) for outcome in outcomes):
        return BatchVerdict.TORN
    return BatchVerdict.REWRITE
