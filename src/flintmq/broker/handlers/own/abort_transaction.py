"""AbortTransaction (15003), version 0, of FlintMQ's own: end somebody's open transaction, and fence its producer.

For an operator who has the transactional id; Kafka can only write an abort marker to one partition, behind the
coordinator's back. Answered when the abort is decided and safe: the markers are written before that, or tried until
they are. Without an open transaction it is INVALID_TXN_STATE; one whose end is decided already is
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import AbortTransactionRequest, AbortTransactionResponse, EndTxnResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_REASONS = {
    ErrorCode.INVALID_REQUEST: "The transactional id is empty.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no transactional id {}.",
    ErrorCode.INVALID_TXN_STATE: "{} has no open transaction.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The end of the transaction of {} is decided already.",
}


async def handle(
    request: Request, message: AbortTransactionRequest, services: Services
) -> AbortTransactionResponse:
    name = message.transactional_id
    new_producer_id = await services.transactions.new_producer_id(name)
    answer = await services.transactions.answer_to(
        name,
        lambda machine, token: machine.abort(
            token, name, new_producer_id=new_producer_id, now_ms=services.clock.now_ms()
        ),
    )
    assert isinstance(answer, EndTxnResponse)
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE:
        raise RequestError(code, _REASONS.get(code, "").format(name))
    return AbortTransactionResponse()
