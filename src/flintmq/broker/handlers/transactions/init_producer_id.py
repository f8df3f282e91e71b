"""InitProducerId (22), versions 0–5: an id for an idempotent or transactional producer (KIP-98).

Without a transactional id every call gives a new id with epoch 0; an id and epoch that the client had (version 3,
KIP-360) only have to come together. With one the coordinator gives the id that belongs to it, with a new epoch by
which all others who use it are fenced; what they left open is aborted first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import init_response
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# How long one is kept waiting for the end of what was open, before it is told to come again.
_WAIT_S = 1.0


async def handle(
    request: Request, message: InitProducerIdRequest, services: Services
) -> InitProducerIdResponse:
    try:
        if message.transactional_id is not None:
            return await _of_transactions(request, message, message.transactional_id, services)
        if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
            raise RequestError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except FlintError as error:
        return init_response(error_code_of(error), request.version)


async def _of_transactions(
    request: Request, message: InitProducerIdRequest, transactional_id: str, services: Services
) -> InitProducerIdResponse:
    response = await _ask(request, message, transactional_id, services)
    if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        await services.transactions.completed(transactional_id, _WAIT_S)
        response = await _ask(request, message, transactional_id, services)
    return response


async def _ask(
    request: Request, message: InitProducerIdRequest, transactional_id: str, services: Services
) -> InitProducerIdResponse:
    new_producer_id = await services.transactions.new_producer_id(transactional_id)
    response = await services.transactions.answer_to(
        transactional_id,
        lambda machine, token: machine.init_producer_id(
            token,
            message,
            request.version,
            new_producer_id=new_producer_id,
            now_ms=services.clock.now_ms(),
        ),
    )
    assert isinstance(response, InitProducerIdResponse)
    return response
