"""ListConfigResources."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse


def handle(request: Request, message: ListConfigResourcesRequest, services: Services) -> ListConfigResourcesResponse:
    raise NotImplementedError
