"""DeleteTopics."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse


def handle(request: Request, message: DeleteTopicsRequest, services: Services) -> DeleteTopicsResponse:
    raise NotImplementedError
