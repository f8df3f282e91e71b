"""ListOffsets."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import ListOffsetsRequest, ListOffsetsResponse


def handle(request: Request, message: ListOffsetsRequest, services: Services) -> ListOffsetsResponse:
    raise NotImplementedError
