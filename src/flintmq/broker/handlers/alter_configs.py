"""AlterConfigs."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import AlterConfigsRequest, AlterConfigsResponse


def handle(request: Request, message: AlterConfigsRequest, services: Services) -> AlterConfigsResponse:
    raise NotImplementedError
