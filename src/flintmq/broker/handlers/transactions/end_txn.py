"""EndTxn (26), versions 0–5: commit or abort. From version 5 on each end bumps the producer's epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import end_response
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import EndTxnRequest, EndTxnResponse
from flintmq.records.batch import NO_PRODUCER_ID
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_WRITE: Final = AclOperation.WRITE
_TRANSACTIONAL_ID: Final = AclResource.TRANSACTIONAL_ID

_FIRST_BUMP: Final = 5


def handle(request: Request, message: EndTxnRequest, services: Services) -> EndTxnResponse | None:
    version, name = request.version, message.transactional_id
    if not is_allowed(request, services, _WRITE, _TRANSACTIONAL_ID, name):
        return end_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version)
    response = DelayedResponse(request, lambda code: end_response(code, version))

    def end(new_producer_id: int) -> None:
        response.call(
            services.transactions,
            CoordinatorCall(
                name,
                lambda machine, token: machine.end(
                    token,
                    message,
                    version,
                    new_producer_id=new_producer_id,
                    now_ms=services.clock.now_ms(),
                ),
            ),
        )

    if version >= _FIRST_BUMP:
        services.transactions.with_producer_id(name, end, response.fail)
    else:
        end(NO_PRODUCER_ID)
    return None
