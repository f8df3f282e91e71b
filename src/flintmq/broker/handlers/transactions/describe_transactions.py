"""DescribeTransactions (65), version 0: what is known of transactional ids, and what their transactions touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import described
from flintmq.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: DescribeTransactionsRequest, services: Services) -> None:
    names = message.transactional_ids
    call_for_each(
        request,
        services,
        services.transactions,
        len(names),
        lambda at: CoordinatorCall(names[at], lambda machine, token: machine.describe(token, names[at])),
        lambda at, code: described(names[at], None, code),
        lambda parts: DescribeTransactionsResponse(
            transaction_states=[state for part in parts for state in part.transaction_states]
        ),
    )
