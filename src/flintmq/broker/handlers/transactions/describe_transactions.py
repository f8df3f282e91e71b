"""DescribeTransactions (65), version 0: what is known of transactional ids, and what their transactions touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed, is_visible
from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.machine import TransactionMachine
from flintmq.coordinator.transactions.responses import described
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: DescribeTransactionsRequest, services: Services) -> None:
    names = message.transactional_ids

    def describe(at: int) -> CoordinatorCall[TransactionMachine] | DescribeTransactionsResponse:
        name = names[at]
        if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, name):
            return described(name, None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return CoordinatorCall(name, lambda machine, token: machine.describe(token, name))

    def join(parts: list[DescribeTransactionsResponse]) -> DescribeTransactionsResponse:
        states = [state for part in parts for state in part.transaction_states]
        if services.authorizer is not None:
            for state in states:
                state.topics = [
                    topic
                    for topic in state.topics
                    if is_visible(request, services, AclResource.TOPIC, topic.topic)
                ]
        return DescribeTransactionsResponse(transaction_states=states)

    call_for_each(
        request,
        services,
        services.transactions,
        len(names),
        describe,
        lambda at, code: described(names[at], None, code),
        join,
    )
