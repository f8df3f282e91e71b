"""ListPartitionReassignments (46), version 0: reassignments in progress (KIP-455).

A single broker finishes them at once, so there is never one, whichever topics are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(
    request: Request, message: ListPartitionReassignmentsRequest, services: Services
) -> ListPartitionReassignmentsResponse:
    check_cluster_allowed(request, services, AclOperation.DESCRIBE)
    return ListPartitionReassignmentsResponse(error_message=None)
