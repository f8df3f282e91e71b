"""DescribeTransactions (65), version 0: what is known of transactional ids, and what their transactions touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import described
from flintmq.errors import RequestError
from flintmq.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(
    request: Request, message: DescribeTransactionsRequest, services: Services
) -> DescribeTransactionsResponse:
    parts = await gather_in_turns(_describe(name, services) for name in message.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[state for part in parts for state in part.transaction_states]
    )


async def _describe(name: str, services: Services) -> DescribeTransactionsResponse:
    try:
        part = await services.transactions.answer_to(
            name, lambda machine, token: machine.describe(token, name)
        )
    except RequestError as error:
        return described(name, None, error.code)
    assert isinstance(part, DescribeTransactionsResponse)
    return part
