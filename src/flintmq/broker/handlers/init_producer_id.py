"""InitProducerId."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse


def handle(request: Request, message: InitProducerIdRequest, services: Services) -> InitProducerIdResponse:
    raise NotImplementedError
