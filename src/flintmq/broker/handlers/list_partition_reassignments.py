"""ListPartitionReassignments."""

from __future__ import annotations

from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(request: Request, message: ListPartitionReassignmentsRequest, services: Services) -> ListPartitionReassignmentsResponse:
    raise NotImplementedError
