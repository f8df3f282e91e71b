"""Heartbeat (12), versions 0–4: a member is still there, and learns of a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import call_coordinator
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import HeartbeatRequest, HeartbeatResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_READ: Final = AclOperation.READ
_GROUP: Final = AclResource.GROUP


def handle(request: Request, message: HeartbeatRequest, services: Services) -> HeartbeatResponse | None:
    if not is_allowed(request, services, _READ, _GROUP, message.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version = request.version
    call_coordinator(
        request,
        services.groups,
        message.group_id,
        lambda groups, token: groups.heartbeat(token, message, version, services.clock.now_ms()),
        lambda code: HeartbeatResponse(error_code=code),
    )
    return None
