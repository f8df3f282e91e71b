"""InitProducerId (22), versions 0–5: an id for an idempotent producer (KIP-98).

Every call gives a new id with epoch 0; an id and epoch that the client had (version 3, KIP-360) only have to
come together. Transactions are not available in this version: a transactional id is refused with
UNSUPPORTED_VERSION, which clients take as final and report, where a coordinator error would be retried for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.answers import error_code_of
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.model.batch import NO_EPOCH, NO_PRODUCER_ID
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(
    request: Request, message: InitProducerIdRequest, services: Services
) -> InitProducerIdResponse:
    try:
        _check(message)
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except FlintError as error:
        return InitProducerIdResponse(
            error_code=error_code_of(error), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
        )


def _check(message: InitProducerIdRequest) -> None:
    if message.transactional_id == "":
        raise RequestError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
        raise RequestError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
    if message.transactional_id is not None:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not available in this version.")
