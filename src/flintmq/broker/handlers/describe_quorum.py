"""DescribeQuorum."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse


def handle(request: Request, message: DescribeQuorumRequest, services: Services) -> DescribeQuorumResponse:
    raise NotImplementedError
