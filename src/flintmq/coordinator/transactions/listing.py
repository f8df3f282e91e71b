"""Which transactions ListTransactions asks for."""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.coordinator.transactions.linear_regex import LinearRegex
from flintmq.coordinator.transactions.transaction import STATES_BY_TITLE, Transaction
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ListTransactionsRequest, ListTransactionsResponse


def list_transactions(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """Those that pass every filter of the request. A transaction that never began counts as old, as in Kafka."""
    producer_ids = frozenset(request.producer_id_filters)
    titles = frozenset(request.state_filters)
    unknown = [title for title in request.state_filters if title not in STATES_BY_TITLE]
    try:
        pattern = LinearRegex(request.transactional_id_pattern) if request.transactional_id_pattern else None
        found = [
            transaction
            for transaction in transactions
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not titles or transaction.state.title in titles)
            and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        ]
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in found
        ],
    )
