"""AbortTransaction (15003), version 0, of FlintMQ's own: end somebody's open transaction, and fence its producer.

For an operator who has the transactional id; Kafka can only write an abort marker to one partition, behind the
coordinator's back. Answered when the abort is decided and safe: the markers are written before that, or tried until
they are. Without an open transaction it is INVALID_TXN_STATE; one whose end is decided already is
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed, is_cluster_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.broker.responses import cut
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AbortTransactionRequest, AbortTransactionResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_REASONS = {
    ErrorCode.INVALID_REQUEST: "The transactional id is empty.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no transactional id {}.",
    ErrorCode.INVALID_TXN_STATE: "{} has no open transaction.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The end of the transaction of {} is decided already.",
}


def handle(request: Request, message: AbortTransactionRequest, services: Services) -> None:
    name = message.transactional_id
    if not is_cluster_allowed(request, services, AclOperation.ALTER, counted=False):
        check_allowed(request, services, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)
    response = DelayedResponse(request, lambda code: _abort_response(code, name))

    def abort(new_producer_id: int) -> None:
        response.call(
            services.transactions,
            CoordinatorCall(
                name,
                lambda machine, token: machine.abort(
                    token, name, new_producer_id=new_producer_id, now_ms=services.clock.now_ms()
                ),
            ),
            lambda ended: response.send(_abort_response(ErrorCode(ended.error_code), name)),
        )

    services.transactions.with_producer_id(name, abort, response.fail)


def _abort_response(code: ErrorCode, transactional_id: str) -> AbortTransactionResponse:
    if code is ErrorCode.NONE:
        return AbortTransactionResponse()
    reason = _REASONS.get(code, code.name).format(transactional_id)
    return AbortTransactionResponse(error_code=code, error_message=cut(reason))
