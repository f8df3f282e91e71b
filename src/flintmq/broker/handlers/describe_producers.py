"""DescribeProducers."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeProducersRequest, DescribeProducersResponse


def handle(request: Request, message: DescribeProducersRequest, services: Services) -> DescribeProducersResponse:
    raise NotImplementedError
