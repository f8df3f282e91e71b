"""Heartbeat (12), versions 0–4: a member is still there, and learns of a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import call_coordinator
from flintmq.broker.request import Request
from flintmq.protocol.messages import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: HeartbeatRequest, services: Services) -> None:
    version = request.version
    call_coordinator(
        request,
        services.groups,
        message.group_id,
        lambda groups, token: groups.heartbeat(token, message, version, services.clock.now_ms()),
        lambda code: HeartbeatResponse(error_code=code),
    )
