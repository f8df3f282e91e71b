"""AddOffsetsToTxn (25), versions 0–4: the offsets of a group take part in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import offsets_response
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(
    request: Request, message: AddOffsetsToTxnRequest, services: Services
) -> AddOffsetsToTxnResponse | None:
    version = request.version
    transactional_id, group_id = message.transactional_id, message.group_id
    if not is_allowed(request, services, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id):
        return offsets_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version)
    if not is_allowed(request, services, AclOperation.READ, AclResource.GROUP, group_id):
        return offsets_response(ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    response = DelayedResponse(request, lambda code: offsets_response(code, version))

    def add() -> None:
        offsets_partition = services.groups.index_of(message.group_id)
        response.call(
            services.transactions,
            CoordinatorCall(
                message.transactional_id,
                lambda machine, token: machine.add_offsets(
                    token,
                    message,
                    version,
                    offsets_partition=offsets_partition,
                    now_ms=services.clock.now_ms(),
                ),
            ),
        )

    services.groups.with_topic(add, response.fail)
    return None
