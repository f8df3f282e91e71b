"""AddOffsetsToTxn (25), versions 0–4: the offsets of a group take part in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import offsets_response
from flintmq.errors import FlintError, error_code_of
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import AddOffsetsToTxnRequest

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(request: Request, message: AddOffsetsToTxnRequest, services: Services) -> Message:
    try:
        await services.groups.make_topic()
        offsets_partition = services.groups.index_of(message.group_id)
        return await services.transactions.answer_to(
            message.transactional_id,
            lambda machine, token: machine.add_offsets(
                token,
                message,
                request.version,
                offsets_partition=offsets_partition,
                now_ms=services.clock.now_ms(),
            ),
        )
    except FlintError as error:
        return offsets_response(error_code_of(error), request.version)
