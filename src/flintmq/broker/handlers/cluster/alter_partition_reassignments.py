"""AlterPartitionReassignments (45), versions 0–1: move partitions to other brokers (KIP-455).

On a single broker a partition can only stay where it is: that is accepted and done at once. Null cancels a
reassignment, of which there is never one in progress. From version 1 on a change of the replication factor may
be forbidden (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import denial, is_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import RequestError
from flintmq.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from flintmq.security.authorization.model import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def handle(
    request: Request, message: AlterPartitionReassignmentsRequest, services: Services
) -> AlterPartitionReassignmentsResponse:
    if not is_cluster_allowed(request, services, AclOperation.ALTER):
        return _refusal(message, denial(request, AclOperation.ALTER, AclResource.CLUSTER, CLUSTER_NAME))
    responses = []
    for topic in message.topics:
        results = []
        unknown = _unknown(topic.name, services)
        for wanted in topic.partitions:
            result = Result(partition_index=wanted.partition_index, error_message=None)
            try:
                if unknown is not None:
                    raise unknown
                services.topics.check_reassignment(
                    topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    factor_may_change=message.allow_replication_factor_change,
                )
            except RequestError as error:
                result.error_code, result.error_message = error.code, reason_of(error)
            results.append(result)
        responses.append(Topic(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


def _refusal(
    message: AlterPartitionReassignmentsRequest, error: RequestError
) -> AlterPartitionReassignmentsResponse:
    reason = reason_of(error)
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=reason,
        responses=[
            Topic(
                name=topic.name,
                partitions=[
                    Result(partition_index=one.partition_index, error_code=error.code, error_message=reason)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def _unknown(name: str, services: Services) -> RequestError | None:
    """Found once for all partitions: the name in the message may be long, and the partitions many."""
    try:
        services.topics.find(name)
    except RequestError as error:
        return RequestError(error.code, reason_of(error))
    return None
