"""CreateTopics."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import CreateTopicsRequest, CreateTopicsResponse


def handle(request: Request, message: CreateTopicsRequest, services: Services) -> CreateTopicsResponse:
    raise NotImplementedError
