"""DescribeConfigs."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse


def handle(request: Request, message: DescribeConfigsRequest, services: Services) -> DescribeConfigsResponse:
    raise NotImplementedError
