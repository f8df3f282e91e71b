"""DescribeCluster."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeClusterRequest, DescribeClusterResponse


def handle(request: Request, message: DescribeClusterRequest, services: Services) -> DescribeClusterResponse:
    raise NotImplementedError
