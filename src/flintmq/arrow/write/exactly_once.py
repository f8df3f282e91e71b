"""A batch of a query, written by many tasks and visible as a whole, once: what tasks and driver have to do.

    task      is the batch decided? → write nothing; else a transaction of its own, left open
    driver    all still open? → decision into the ledger → commit each → `finished` into the ledger

A kill before the decision leaves open transactions that the next run aborts; a kill after it leaves a decision that
the next run carries out, for its tasks read the ledger before they take any transactional id. `docs/decisions/0007`
goes through the kills.

Invariant: no transaction is committed before its decision is in the ledger, and none that a decision names is
aborted here unless the decision does not hold. This module must not know Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from flintmq.arrow.write.ledger import Ledger, LedgerEntry
from flintmq.arrow.write.transaction_outcomes import BatchVerdict, TransactionOutcome, judge, outcomes_of
from flintmq.client.admin.transactions import list_transactions
from flintmq.client.cluster import ClusterClient
from flintmq.client.transaction import OpenedTransaction, begin, describe, end, longest_timeout_ms
from flintmq.errors import FlintError

logger = logging.getLogger(__name__)

_PREFIX: Final = "flintmq-spark"
_RESERVE_MS_MAX: Final = 60_000
"""What must be left of a transaction's time when it is decided, so that a driver that dies then can be back."""
_NAMED_MAX: Final = 5
"""Transactions that an error names; the others are counted."""


class WriteError(FlintError):
    """A batch that could not be written; nothing of it is visible unless the message says so."""


class WriteResult(NamedTuple):
    """What a task has done for its part of a batch."""

    query: str
    batch: int
    row_count: int
    transaction: OpenedTransaction | None
    """Open, with the rows in it; None if there were no rows, or if the batch is decided."""
    was_decided: bool = False


class ExactlyOnce:
    def __init__(self, client: ClusterClient, *, ledger_topic: str, rewrites_torn: bool = False) -> None:
        self._client = client
        self._ledger = Ledger(client, ledger_topic)
        self._rewrites_torn = rewrites_torn

    # ---- tasks

    def is_decided(self, query: str, batch: int) -> bool:
        """Whether the batch was written by an earlier run. To be asked before `begin`, by every task."""
        entry = self._ledger.last(query)
        if entry is None:
            return False
        if entry.batch > batch:
            logger.warning("batch %d of %s is not written: batch %d was before", batch, query, entry.batch)
            return True
        if entry.batch < batch and entry.is_pending:
            raise WriteError(
                f"batch {entry.batch} of {query} was decided and never finished, and now comes batch {batch}: "
                "the checkpoint is not the one that the query had; start the query from its own checkpoint"
            )
        return entry.covers(batch) and (entry.finished or self._holds(entry))

    def _holds(self, entry: LedgerEntry) -> bool:
        """Whether a decision that is not finished can still be carried out; if it cannot, it is voided."""
        outcomes = self._outcomes(entry.transactions)
        verdict = judge(outcomes.values())
        if verdict is BatchVerdict.COMMIT:
            return True
        if verdict is BatchVerdict.TORN:
            # Another task may have voided the decision since it was read here, and taken one of its ids by now.
            if self._ledger.last(entry.query) == entry._replace(is_void=True):
                return False
            if not self._rewrites_torn:
                raise _torn(entry, outcomes)
        logger.warning("batch %d of %s is written anew: %s", entry.batch, entry.query, _counted(outcomes))
        # Before anything is written: whoever comes next must not look for the old transactions.
        self._ledger.void(entry)
        return False

    def begin(self, query: str, *, partition: int, attempt: int, timeout_ms: int | None) -> OpenedTransaction:
        """A transaction for one attempt of one task. Another attempt has another id, and cannot end this one."""
        if timeout_ms is None:
            timeout_ms = longest_timeout_ms(self._client)
        return begin(self._client, f"{_PREFIX}-{query}-{partition}-{attempt}", timeout_ms=timeout_ms)

    # ---- driver

    def commit(self, results: Sequence[WriteResult]) -> None:
        """All tasks have done their part: let it be seen. May be called again, and again after a kill."""
        if not results:
            return
        query, batch = results[0].query, results[0].batch
        opened = [one.transaction for one in results if one.transaction is not None]
        entry = self._ledger.last(query)
        if entry is not None and entry.covers(batch):
            self._finish(entry, batch)
            self._abort([one for one in opened if one not in entry.transactions])
            return
        if any(one.was_decided for one in results):
            raise WriteError(
                f"batch {batch} of {query} was decided when its tasks began and is not any more; "
                "start the query again: it is written anew"
            )
        if not opened:
            return
        self._check_open(query, batch, opened)
        entry = LedgerEntry(query, batch, uuid4().hex, tuple(opened))
        self._ledger.write(entry)
        self._carry_out(entry, opened)
        self._fence_others(query)

    def _finish(self, entry: LedgerEntry, batch: int) -> None:
        """A decision of an earlier run: carry out what is left of it."""
        if entry.finished or entry.batch > batch:
            return
        outcomes = self._outcomes(entry.transactions)
        if judge(outcomes.values()) is not BatchVerdict.COMMIT:
            raise _torn(entry, outcomes)
        self._carry_out(
            entry, [one for one, outcome in outcomes.items() if outcome is TransactionOutcome.OPEN]
        )
        self._fence_others(entry.query)

    def _carry_out(self, entry: LedgerEntry, opened: Sequence[OpenedTransaction]) -> None:
        refused = end(self._client, opened, committed=True)
        if refused:
            outcomes = self._outcomes(entry.transactions)
            if judge(outcomes.values()) is not BatchVerdict.COMMIT:
                raise _torn(entry, outcomes)
            raise WriteError(
                f"batch {entry.batch} of {entry.query} is decided and could not be finished: "
                f"{next(iter(refused.values()))}; start the query again to finish it"
            )
        self._ledger.write(entry._replace(transactions=(), finished=True))

    def _check_open(self, query: str, batch: int, opened: Sequence[OpenedTransaction]) -> None:
        """Before the decision: after it, one that is lost tears the batch."""
        described = describe(self._client, [one.id for one in opened])
        outcomes = outcomes_of(opened, described)
        if any(outcome is not TransactionOutcome.OPEN for outcome in outcomes.values()):
            raise WriteError(
                f"batch {batch} of {query} took too long, or was run twice at a time: {_counted(outcomes)}; nothing "
                "of it is visible. Start the query again; if it happens again make its batches smaller "
                "(maxOffsetsPerTrigger), or let the broker wait longer (transaction.max.timeout.ms)"
            )
        timeout_ms = min(described[one.id].timeout_ms for one in opened)
        reserve_ms = min(_RESERVE_MS_MAX, timeout_ms // 4)
        # The broker tells which are old: its clock and ours may differ.
        old = list_transactions(self._client, states=["Ongoing"], older_than_ms=timeout_ms - reserve_ms)
        if not {one.id for one in opened}.isdisjoint(one.id for one in old):
            raise WriteError(
                f"batch {batch} of {query} took so long that the broker will end its first transactions within "
                f"{reserve_ms} ms; nothing of it is visible. Make its batches smaller (maxOffsetsPerTrigger), or let "
                "the broker wait longer (transaction.max.timeout.ms)"
            )

    def abort(self, results: Sequence[WriteResult]) -> None:
        """The job failed, or `commit` did: end what no decision names."""
        if not results:
            return
        query, batch = results[0].query, results[0].batch
        entry = self._ledger.last(query)
        if entry is not None and entry.is_pending:
            logger.warning(
                "batch %d of %s is decided: it is finished when the query starts again", batch, query
            )
            return
        self._abort([one.transaction for one in results if one.transaction is not None])
        self._fence_others(query)

    # ---- both

    def _outcomes(
        self, transactions: Sequence[OpenedTransaction]
    ) -> dict[OpenedTransaction, TransactionOutcome]:
        return outcomes_of(transactions, describe(self._client, [one.id for one in transactions]))

    def _abort(self, transactions: Sequence[OpenedTransaction]) -> None:
        for transaction, error in end(self._client, transactions, committed=False).items():
            logger.warning("%s is not aborted by this run: %s", transaction.id, error)

    def _fence_others(self, query: str) -> None:
        """What attempts that lost have left open keeps readers of committed records waiting: abort it.

        What does not succeed here the broker does itself, when their time is over.
        """
        own = re.compile(re.escape(f"{_PREFIX}-{query}-") + r"\d+-\d+")
        try:
            for listed in list_transactions(self._client, states=["Ongoing"]):
                if own.fullmatch(listed.id):
                    begin(self._client, listed.id, timeout_ms=_RESERVE_MS_MAX)
        except FlintError as error:
            logger.warning("what lost attempts of %s have left open stays so for now: %s", query, error)


def _counted(outcomes: dict[OpenedTransaction, TransactionOutcome]) -> str:
    counts = {
        outcome: sum(1 for one in outcomes.values() if one is outcome) for outcome in TransactionOutcome
    }
    return (
        ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count) + " transactions"
    )


def _torn(entry: LedgerEntry, outcomes: dict[OpenedTransaction, TransactionOutcome]) -> WriteError:
    lost: Collection[str] = [
        one.id
        for one, outcome in outcomes.items()
        if outcome in (TransactionOutcome.ABORTED, TransactionOutcome.UNKNOWN)
    ]
    named = ", ".join(sorted(lost)[:_NAMED_MAX]) + (", …" if len(lost) > _NAMED_MAX else "")
    return WriteError(
        f"batch {entry.batch} of {entry.query} is torn: {_counted(outcomes)}. It was decided, and the broker gave up "
        f"waiting for its end before the query came back; the rows of {named} are missing. With the option "
        "onTornBatch=rewrite the batch is written again, and the rows that are there come twice"
    )
