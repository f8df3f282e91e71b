"""FindCoordinator (10), versions 0–6: which broker looks after a group or a transactional id. On one node, this one.

Whoever asks first makes the topic that they live in. Several keys from version 4 on. Share groups have no coordinator
in this version, which is said with INVALID_REQUEST, for a retriable code would have clients ask for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_GROUP, _TRANSACTION = 0, 1
_FIRST_SEVERAL = 4


async def handle(
    request: Request, message: FindCoordinatorRequest, services: Services
) -> FindCoordinatorResponse:
    code, reason = ErrorCode.NONE, None
    node_id, host, port = -1, "", -1
    try:
        await _make_topic(message.key_type, services)
        endpoint = services.endpoints.of(request.session)[0]
        node_id, host, port = endpoint.node_id, endpoint.host, endpoint.port
    except FlintError as error:
        code, reason = error_code_of(error), reason_of(error)
    if request.version < _FIRST_SEVERAL:
        return FindCoordinatorResponse(
            error_code=code, error_message=reason, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=reason
            )
            for key in message.coordinator_keys
        ]
    )


async def _make_topic(key_type: int, services: Services) -> None:
    """Of the coordinator that is asked for. RequestError if there is none of that kind."""
    if key_type == _TRANSACTION:
        await services.transactions.make_topic()
    elif key_type != _GROUP:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Only groups and transactions have a coordinator.")
    elif services.configs.broker.flint_consumer_groups_enable:
        await services.groups.make_topic()
    else:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "Groups are switched off (flint.consumer.groups.enable)."
        )
