"""CreatePartitions."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse


def handle(request: Request, message: CreatePartitionsRequest, services: Services) -> CreatePartitionsResponse:
    raise NotImplementedError
