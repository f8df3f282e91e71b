"""The transaction coordinator: the machine of one partition of `__transaction_state`.

A question is checked by `rules`, which give the transaction after the step; its record is the decision, and applying
that record is the step. Between the two nothing has changed, so a record that could not be written leaves everything
as it was. When a transaction is decided the decision names the markers to be written; they are named again when the
partition is loaded, until `markers_written` has completed it.

The machine does not know how markers are written, what is in a data partition, or who waits for a reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flintmq.coordinator.runtime.machine import CoordinatorRecord, Decision, StoredRecord, TimerKey, Token
from flintmq.coordinator.transactions import responses, transitions
from flintmq.coordinator.transactions.decision import MarkerWork, TransactionDecision, markers_of
from flintmq.coordinator.transactions.listing import list_transactions
from flintmq.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from flintmq.coordinator.transactions.responses import AddedTransaction
from flintmq.coordinator.transactions.transaction import EPOCH_BUMP_VERSION, Transaction, TransactionState
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID

OFFSETS_TOPIC: Final = "__consumer_offsets"

_EPOCH_BUMP_VERSION_OF_END: Final = 5
_EPOCH_BUMP_VERSION_OF_ADD: Final = 4
_RETRY_MS: Final = 1_000
"""After a record that nobody waits for could not be written."""
_TOMBSTONE_BYTES_MAX: Final = 256 * 1024
"""Of one batch; a sweep that found more goes on at once."""

_SWEEP: Final = ("sweep",)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`"""
    expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`"""
    sweep_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    transaction_version: int = 2
    """The finalized level of `transaction.version`."""


class TransactionMachine:
    def __init__(self, settings: TransactionSettings, *, coordinator_epoch: int = 0) -> None:
        self.settings = settings
        self.coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._decided: dict[bytes, tuple[bytes, Transaction]] = {}
        """Records on their way to `apply`, with what they do not tell: the epoch before the last."""

    # ---- records

    def apply(self, stored: StoredRecord) -> None:
        ours = self._decided.pop(stored.key, None)
        transactional_id = decode_key(stored.key)
        if transactional_id is None:
            return
        if stored.value is None:
            self._transactions.pop(transactional_id, None)
            return
        if ours is not None and ours[0] == stored.value:
            self._transactions[transactional_id] = ours[1]
            return
        transaction = decode_value(transactional_id, stored.value)
        if transaction is not None:
            self._transactions[transactional_id] = transaction

    def end_transaction(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """Nothing: the coordinator's own records are in no transaction."""

    def loaded(self, now_ms: int) -> TransactionDecision:
        decision = TransactionDecision(markers=self.unfinished())
        decision.timers[_SWEEP] = self.settings.sweep_interval_ms
        for transaction in self._transactions.values():
            if transaction.due_ms is not None:
                decision.timers[_time_out_key(transaction)] = max(0, transaction.due_ms - now_ms)
        return decision

    # ---- questions about what there is

    def known(self) -> list[Transaction]:
        """As they are now."""
        return list(self._transactions.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def unfinished(self) -> list[MarkerWork]:
        """The markers of all transactions that are decided and not complete."""
        return [
            work
            for transaction in self._transactions.values()
            for work in markers_of(transaction, self.coordinator_epoch)
        ]

    def wants_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id`, `end` or `abort` may need a new producer id now.

        A caller that gives none where one is needed is answered CONCURRENT_TRANSACTIONS and asked again.
        """
        transaction = self._transactions.get(transactional_id)
        return transaction is None or transaction.is_exhausted

    def describe(self, token: Token, transactional_id: str) -> TransactionDecision:
        transaction, code = self._transactions.get(transactional_id), ErrorCode.NONE
        if not transactional_id:
            code = ErrorCode.INVALID_REQUEST
        elif transaction is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return _answer(token, responses.described(transactional_id, transaction, code))

    def list_transactions(
        self, token: Token, request: ListTransactionsRequest, now_ms: int
    ) -> TransactionDecision:
        return _answer(token, list_transactions(self._transactions.values(), request, now_ms))

    # ---- requests

    def init_producer_id(
        self,
        token: Token,
        request: InitProducerIdRequest,
        version: int,
        *,
        new_producer_id: int = NO_PRODUCER_ID,
        now_ms: int,
    ) -> TransactionDecision:
        """A transactional producer begins; one without a transactional id does not need the coordinator."""

        def refuse(code: ErrorCode) -> Message:
            return responses.init_response(code, version)

        def accept(after: Transaction) -> Message:
            if after.is_decided:
                return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
            return responses.init_response(ErrorCode.NONE, version, after.producer_id, after.epoch)

        def initialize() -> Transaction:
            has_expectation = request.producer_id != NO_PRODUCER_ID
            return transitions.initialize(
                self._initial(request, new_producer_id),
                (request.producer_id, request.producer_epoch) if has_expectation else None,
                timeout_ms=request.transaction_timeout_ms,
                server_version=self.settings.transaction_version,
                new_producer_id=new_producer_id,
                now_ms=now_ms,
            )

        return self._asked(token, initialize, accept, refuse)

    def _initial(self, request: InitProducerIdRequest, new_producer_id: int) -> Transaction:
        """What a producer that initializes finds. One that nobody has had yet is not remembered before its record."""
        if not request.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            raise RequestError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
        if not 0 < request.transaction_timeout_ms <= self.settings.max_timeout_ms:
            raise RequestError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self._transactions.get(request.transactional_id)
        return known or Transaction(request.transactional_id, transitions.given(new_producer_id))

    def add_partitions(
        self, token: Token, request: AddedTransaction, version: int, now_ms: int
    ) -> TransactionDecision:
        """One transaction of AddPartitionsToTxn; `replies.transactions_of` gives them, `replies.joined` joins the
        answers. A Produce or TxnOffsetCommit that adds its partitions by itself asks the same way, as version 5."""
        partitions = responses.partitions_of(request)

        def refuse(code: ErrorCode) -> Message:
            codes = dict.fromkeys(partitions, code)
            return responses.added_response(request.transactional_id, codes, version)

        def accept(after: Transaction) -> Message:
            if not request.verify_only:
                return refuse(ErrorCode.NONE)
            codes = {
                one: ErrorCode.NONE if one in after.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for one in partitions
            }
            return responses.added_response(request.transactional_id, codes, version)

        def add() -> Transaction:
            known = self._named(request.transactional_id)
            producer = request.producer_id, request.producer_epoch
            if request.verify_only:
                return transitions.verify(known, *producer)
            client_version = EPOCH_BUMP_VERSION if version >= _EPOCH_BUMP_VERSION_OF_ADD else 0
            return transitions.add(known, *producer, partitions, client_version=client_version, now_ms=now_ms)

        return self._asked(token, add, accept, refuse)

    def add_offsets(
        self,
        token: Token,
        request: AddOffsetsToTxnRequest,
        version: int,
        *,
        offsets_partition: int,
        now_ms: int,
    ) -> TransactionDecision:
        """The group's partition of the offsets topic takes part. Only clients of the first generation ask this."""

        def refuse(code: ErrorCode) -> Message:
            return responses.offsets_response(code, version)

        def add() -> Transaction:
            return transitions.add(
                self._named(request.transactional_id),
                request.producer_id,
                request.producer_epoch,
                [(OFFSETS_TOPIC, offsets_partition)],
                client_version=0,
                now_ms=now_ms,
            )

        return self._asked(token, add, lambda _: refuse(ErrorCode.NONE), refuse)

    def end(
        self,
        token: Token,
        request: EndTxnRequest,
        version: int,
        *,
        new_producer_id: int = NO_PRODUCER_ID,
        now_ms: int,
    ) -> TransactionDecision:
        """EndTxn. The answer does not wait for the markers; from version 5 on it tells the producer id and epoch that
        hold after them."""
        bumps = version >= _EPOCH_BUMP_VERSION_OF_END

        def refuse(code: ErrorCode) -> Message:
            return responses.end_response(code, version)

        def accept(after: Transaction) -> Message:
            if not bumps:
                return refuse(ErrorCode.NONE)
            holds = after.completed(now_ms) if after.is_decided else after
            return responses.end_response(ErrorCode.NONE, version, holds.producer_id, holds.epoch)

        def end() -> Transaction:
            known = self._named(request.transactional_id)
            producer = request.producer_id, request.producer_epoch
            if not bumps:
                return transitions.end_keeping_epoch(
                    known, *producer, committed=request.committed, now_ms=now_ms
                )
            return transitions.end_bumping_epoch(
                known, *producer, committed=request.committed, new_producer_id=new_producer_id, now_ms=now_ms
            )

        return self._asked(token, end, accept, refuse)

    def abort(
        self, token: Token, transactional_id: str, *, new_producer_id: int = NO_PRODUCER_ID, now_ms: int
    ) -> TransactionDecision:
        """An operator ends an ongoing transaction; its producer is fenced. Answered as the newest EndTxn is."""

        def refuse(code: ErrorCode) -> Message:
            return responses.end_response(code, _EPOCH_BUMP_VERSION_OF_END)

        def fence() -> Transaction:
            transaction = self._named(transactional_id)
            if transaction is None:
                raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return self._fenced(transaction, new_producer_id, now_ms)

        return self._asked(token, fence, lambda _: refuse(ErrorCode.NONE), refuse)

    def _named(self, transactional_id: str) -> Transaction | None:
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        return self._transactions.get(transactional_id)

    # ---- what nobody asked for

    def markers_written(
        self, transactional_id: str, producer_id: int, epoch: int, now_ms: int
    ) -> TransactionDecision:
        """All markers of that decision are in their partitions, or these are gone: the transaction is complete."""
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or not transaction.is_decided
            or (transaction.producer_id, transaction.epoch) != (producer_id, epoch)
        ):
            return TransactionDecision()
        retry: dict[TimerKey, int | None] = {("complete", transactional_id, producer_id, epoch): _RETRY_MS}
        return self._written(transaction.completed(now_ms), lambda _: Decision(timers=retry))

    def time_out(
        self, transactional_id: str, *, new_producer_id: int = NO_PRODUCER_ID, now_ms: int
    ) -> TransactionDecision:
        """Abort the transaction if it has lasted too long."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.due_ms is None:
            return TransactionDecision()
        key = _time_out_key(transaction)
        if now_ms < transaction.due_ms:
            return TransactionDecision(timers={key: transaction.due_ms - now_ms})
        try:
            after = self._fenced(transaction, new_producer_id, now_ms)
        except RequestError:
            return TransactionDecision(timers={key: _RETRY_MS}, wants_producer_id=[transactional_id])
        decision = self._written(after, lambda _: Decision(timers={key: _RETRY_MS}))
        decision.timers[key] = None
        return decision

    def expire(self, key: TimerKey, now_ms: int) -> TransactionDecision:
        match key:
            case ("time-out", str(transactional_id)):
                return self.time_out(transactional_id, now_ms=now_ms)
            case ("complete", str(transactional_id), int(producer_id), int(epoch)):
                return self.markers_written(transactional_id, producer_id, epoch, now_ms)
            case ("sweep",):
                return self._sweep(now_ms)
        raise ValueError(f"no timer of transactions: {key!r}")

    def _sweep(self, now_ms: int) -> TransactionDecision:
        """Forget the transactional ids that nobody has used for long."""
        records: list[CoordinatorRecord] = []
        size, next_ms = 0, self.settings.sweep_interval_ms
        for transaction in self._transactions.values():
            if not transaction.may_expire(now_ms, self.settings.expiration_ms):
                continue
            key = encode_key(transaction.transactional_id)
            size += len(key)
            if records and size > _TOMBSTONE_BYTES_MAX:
                next_ms = 0
                break
            records.append(CoordinatorRecord(key, None))
        later: dict[TimerKey, int | None] = {_SWEEP: self.settings.sweep_interval_ms}
        return TransactionDecision(
            records=records, timers={_SWEEP: next_ms}, failed=lambda _: Decision(timers=later)
        )

    # ---- steps

    def _fenced(self, transaction: Transaction, new_producer_id: int, now_ms: int) -> Transaction:
        return transitions.fence(
            transaction,
            server_version=self.settings.transaction_version,
            new_producer_id=new_producer_id,
            now_ms=now_ms,
        )

    def _asked(
        self,
        token: Token,
        step: Callable[[], Transaction],
        accept: Callable[[Transaction], Message],
        refuse: Callable[[ErrorCode], Message],
    ) -> TransactionDecision:
        """A step that somebody waits for. One that gives the transaction as it is needs no record."""
        try:
            after = step()
        except RequestError as error:
            return _answer(token, refuse(error.code))
        before = self._transactions.get(after.transactional_id)
        if after is before:
            return _answer(token, accept(after))
        decision = self._written(
            after, lambda code: Decision().respond(token, refuse(responses.write_error(code)))
        )
        decision.respond(token, accept(after))
        was_ongoing = before is not None and before.state is TransactionState.ONGOING
        if was_ongoing and after.state is not TransactionState.ONGOING:
            decision.timers[_time_out_key(after)] = None
        elif not was_ongoing and after.due_ms is not None:
            decision.timers[_time_out_key(after)] = after.due_ms - after.start_ms
        return decision

    def _written(self, after: Transaction, failed: Callable[[ErrorCode], Decision]) -> TransactionDecision:
        """The decision that writes one transaction's record; until it is applied, nothing has changed."""
        key = encode_key(after.transactional_id)
        # A client of the second generation needs the fields of version 1, whatever the cluster's level says.
        has_tags = self.settings.transaction_version >= 1 or after.client_version > 0
        value = encode_value(after, log_version=1 if has_tags else 0)
        self._decided[key] = (value, after)

        def forget(code: ErrorCode) -> Decision:
            self._decided.pop(key, None)
            return failed(code)

        return TransactionDecision(
            records=[CoordinatorRecord(key, value)],
            failed=forget,
            markers=markers_of(after, self.coordinator_epoch),
        )


def _time_out_key(transaction: Transaction) -> TimerKey:
    return ("time-out", transaction.transactional_id)


def _answer(token: Token, message: Message) -> TransactionDecision:
    decision = TransactionDecision()
    decision.respond(token, message)
    return decision
