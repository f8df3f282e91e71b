"""AlterPartitionReassignments."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse


def handle(request: Request, message: AlterPartitionReassignmentsRequest, services: Services) -> AlterPartitionReassignmentsResponse:
    raise NotImplementedError
