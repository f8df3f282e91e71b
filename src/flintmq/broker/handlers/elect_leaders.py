"""ElectLeaders."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import ElectLeadersRequest, ElectLeadersResponse


def handle(request: Request, message: ElectLeadersRequest, services: Services) -> ElectLeadersResponse:
    raise NotImplementedError
