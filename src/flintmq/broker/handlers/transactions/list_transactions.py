"""ListTransactions (66), versions 0–2: by state and producer, by age from version 1 on, by name from version 2 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_visible
from flintmq.broker.request import Request
from flintmq.coordinator.runtime.machine import Token
from flintmq.coordinator.runtime.shard import ShardState
from flintmq.coordinator.transactions.listing import list_transactions
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from flintmq.security.authorization.model import AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# All shards are asked at once, and answer at once.
_ASKING: Token = -1


def handle(
    request: Request, message: ListTransactionsRequest, services: Services
) -> ListTransactionsResponse:
    now_ms = services.clock.now_ms()
    # Of none, for what is to be said of the request itself.
    response = list_transactions([], message, now_ms)
    for shard in services.transactions:
        if shard.state is ShardState.LOADING:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if shard.state is ShardState.ACTIVE:
            for _, part in shard.machine.list_transactions(_ASKING, message, now_ms).responses:
                assert isinstance(part, ListTransactionsResponse)
                response.transaction_states += [
                    state
                    for state in part.transaction_states
                    if is_visible(request, services, AclResource.TRANSACTIONAL_ID, state.transactional_id)
                ]
    return response
