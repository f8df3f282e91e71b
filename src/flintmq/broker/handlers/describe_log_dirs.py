"""DescribeLogDirs."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse


def handle(request: Request, message: DescribeLogDirsRequest, services: Services) -> DescribeLogDirsResponse:
    raise NotImplementedError
