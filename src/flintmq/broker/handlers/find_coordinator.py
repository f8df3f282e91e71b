"""FindCoordinator (10), versions 0–6: which broker looks after a group. On one node, this one.

Whoever asks first makes the topic that groups live in. Several keys from version 4 on. Transactions and share groups
have no coordinator in this version, which is said with INVALID_REQUEST, for a retriable code would have clients ask
for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_GROUP = 0
_FIRST_SEVERAL = 4


async def handle(
    request: Request, message: FindCoordinatorRequest, services: Services
) -> FindCoordinatorResponse:
    code, reason = ErrorCode.NONE, None
    node_id, host, port = -1, "", -1
    if message.key_type == _GROUP:
        await services.groups.make_topic()
        endpoint = services.endpoints.of(request.session)[0]
        node_id, host, port = endpoint.node_id, endpoint.host, endpoint.port
    else:
        code, reason = ErrorCode.INVALID_REQUEST, "Only groups have a coordinator in this version."
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
