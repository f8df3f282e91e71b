"""Which transactional data was aborted, and which markers have done their work (KIP-98). Pure.

Told of every batch in the order of the log, it says of data whether its transaction was aborted and of a marker
whether no data of its transaction was met any more. An aborted transaction stays in the index of the segment that
holds its marker as long as some of its data was met, if only in this pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.records.batch import BatchHeader
from flintmq.records.markers import ABORT, COMMIT
from flintmq.storage.aborted_transactions import AbortedTransaction


class _Aborted:
    __slots__ = ("data_was_met", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.data_was_met = False


class CleanedTransactions:
    """What is known at one place of the log, walked from `start_offset` on."""

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        # One that ended before the walk began would never be seen to end.
        relevant = (transaction for transaction in aborted if transaction.last_offset >= start_offset)
        self._coming = sorted(relevant, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.still_indexed: list[AbortedTransaction] = []
        """Those whose marker was passed and whose data was met; whoever writes an index takes them away."""

    def pass_data(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.data_was_met = True
        return True

    def pass_marker(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether nothing is left of what a control batch ends; `kind` is None if it has no records any more."""
        self._begin(header.last_offset)
        if kind is None:
            return True
        if kind == ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and aborted.data_was_met:
                self.still_indexed.append(aborted.transaction)
                return False
            return True
        if kind == COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return False

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
