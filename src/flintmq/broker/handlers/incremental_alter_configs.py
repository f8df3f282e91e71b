"""IncrementalAlterConfigs."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse


def handle(request: Request, message: IncrementalAlterConfigsRequest, services: Services) -> IncrementalAlterConfigsResponse:
    raise NotImplementedError
