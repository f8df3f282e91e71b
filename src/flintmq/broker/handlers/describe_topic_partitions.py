"""DescribeTopicPartitions."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse


def handle(request: Request, message: DescribeTopicPartitionsRequest, services: Services) -> DescribeTopicPartitionsResponse:
    raise NotImplementedError
