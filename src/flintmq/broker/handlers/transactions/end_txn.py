"""EndTxn (26), versions 0–5: commit or abort. From version 5 on each end bumps the producer's epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import end_response
from flintmq.errors import FlintError, error_code_of
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import EndTxnRequest
from flintmq.records.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_BUMP = 5


async def handle(request: Request, message: EndTxnRequest, services: Services) -> Message:
    transactions, name = services.transactions, message.transactional_id
    try:
        new_producer_id = NO_PRODUCER_ID
        if request.version >= _FIRST_BUMP:
            new_producer_id = await transactions.new_producer_id(name)
        return await transactions.answer_to(
            name,
            lambda machine, token: machine.end(
                token,
                message,
                request.version,
                new_producer_id=new_producer_id,
                now_ms=services.clock.now_ms(),
            ),
        )
    except FlintError as error:
        return end_response(error_code_of(error), request.version)
