"""InitProducerId (22), versions 0–5: an id for an idempotent or transactional producer (KIP-98).

Without a transactional id every call gives a new id with epoch 0; an id and epoch that the client had (version 3,
KIP-360) only have to come together. With one the coordinator gives the id that belongs to it, with a new epoch by
which all others who use it are fenced; what they left open is aborted first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed, is_cluster_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import init_response
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID
from flintmq.security.authorization.model import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# How long the request waits for the end of a decided transaction before the client has to retry.
_WAIT_S: Final = 1.0


def handle(
    request: Request, message: InitProducerIdRequest, services: Services
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse] | None:
    name = message.transactional_id
    if name is None:
        if not _may_write_somewhere(request, services):
            return init_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request.version)
        return _init_idempotent(request, message, services)
    if not is_allowed(request, services, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name):
        return init_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, request.version)
    _init_transactional(request, message, name, services)
    return None


def _may_write_somewhere(request: Request, services: Services) -> bool:
    """An idempotent producer needs a right of its own, or one to write to any topic at all (KIP-679)."""
    authorizer = services.authorizer
    if authorizer is None or is_cluster_allowed(
        request, services, AclOperation.IDEMPOTENT_WRITE, counted=False
    ):
        return True
    if authorizer.allows_somewhere(request.session, AclOperation.WRITE, AclResource.TOPIC):
        return True
    authorizer.denied(
        AclOperation.IDEMPOTENT_WRITE, request.session, AclResource.CLUSTER, CLUSTER_NAME, request.api.name
    )
    return False


async def _init_idempotent(
    request: Request, message: InitProducerIdRequest, services: Services
) -> InitProducerIdResponse:
    try:
        if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
            raise RequestError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except FlintError as error:
        return init_response(error_code_of(error), request.version)


def _init_transactional(
    request: Request, message: InitProducerIdRequest, transactional_id: str, services: Services
) -> None:
    transactions, version = services.transactions, request.version
    response = DelayedResponse(request, lambda code: init_response(code, version))

    def init(respond: Callable[[InitProducerIdResponse], object]) -> None:
        transactions.with_producer_id(
            transactional_id,
            lambda new_producer_id: response.call(
                transactions,
                CoordinatorCall(
                    transactional_id,
                    lambda machine, token: machine.init_producer_id(
                        token,
                        message,
                        version,
                        new_producer_id=new_producer_id,
                        now_ms=services.clock.now_ms(),
                    ),
                ),
                respond,
            ),
            response.fail,
        )

    def send_or_retry(first: InitProducerIdResponse) -> None:
        if first.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            transactions.when_complete(transactional_id, _WAIT_S, lambda: init(response.send))
        else:
            response.send(first)

    init(send_or_retry)
