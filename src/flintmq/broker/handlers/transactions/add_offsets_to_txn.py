"""AddOffsetsToTxn (25), versions 0–4: the offsets of a group take part in a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import offsets_response
from flintmq.protocol.messages import AddOffsetsToTxnRequest

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: AddOffsetsToTxnRequest, services: Services) -> None:
    version = request.version
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
