"""OffsetForLeaderEpoch."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse


def handle(request: Request, message: OffsetForLeaderEpochRequest, services: Services) -> OffsetForLeaderEpochResponse:
    raise NotImplementedError
