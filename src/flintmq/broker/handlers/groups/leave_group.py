"""LeaveGroup (13), versions 0–5: members go, and the others share what they had. Several from version 3 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import call_coordinator
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: LeaveGroupRequest, services: Services) -> LeaveGroupResponse | None:
    if not is_allowed(request, services, AclOperation.READ, AclResource.GROUP, message.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version = request.version
    call_coordinator(
        request,
        services.groups,
        message.group_id,
        lambda groups, token: groups.leave_group(token, message, version, services.clock.now_ms()),
        lambda code: LeaveGroupResponse(error_code=code),
    )
    return None
