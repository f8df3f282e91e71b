"""ElectLeaders (43), versions 0–2: give partitions their preferred leader, or any at all (KIP-183, KIP-460).

Every partition of a single broker has its preferred leader: ELECTION_NOT_NEEDED, and nothing to tell where all
partitions are asked for by null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import denial, is_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from flintmq.security.authorization.model import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = ElectLeadersResponse.ReplicaElectionResult
Result = ElectLeadersResponse.PartitionResult

_PREFERRED, _UNCLEAN = 0, 1
_FIRST_WITH_ERROR = 1


def handle(request: Request, message: ElectLeadersRequest, services: Services) -> ElectLeadersResponse:
    if not is_cluster_allowed(request, services, AclOperation.ALTER):
        return _refusal(
            request, message, denial(request, AclOperation.ALTER, AclResource.CLUSTER, CLUSTER_NAME)
        )
    image = services.metadata.image
    unknown = message.election_type not in (_PREFERRED, _UNCLEAN)
    if message.topic_partitions is None and not unknown:
        return ElectLeadersResponse(replica_election_results=[Topic(topic=name) for name in image.topics])
    results = []
    for wanted in message.topic_partitions or ():
        topic = image.topics.get(wanted.topic)
        count = len(topic.partitions) if topic is not None else 0
        elected = []
        for index in wanted.partitions:
            if unknown:
                code, why = ErrorCode.INVALID_REQUEST, f"Unknown election type {message.election_type}."
            elif 0 <= index < count:
                code, why = ErrorCode.ELECTION_NOT_NEEDED, "The partition has its preferred leader."
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                why = "There is no such partition."
            elected.append(Result(partition_id=index, error_code=code, error_message=why))
        results.append(Topic(topic=wanted.topic, partition_result=elected))
    return ElectLeadersResponse(
        error_code=ErrorCode.INVALID_REQUEST if unknown else ErrorCode.NONE, replica_election_results=results
    )


def _refusal(request: Request, message: ElectLeadersRequest, error: RequestError) -> ElectLeadersResponse:
    response = ElectLeadersResponse(
        replica_election_results=[
            Topic(
                topic=wanted.topic,
                partition_result=[
                    Result(partition_id=index, error_code=error.code, error_message=reason_of(error))
                    for index in wanted.partitions
                ],
            )
            for wanted in message.topic_partitions or ()
        ]
    )
    if request.version >= _FIRST_WITH_ERROR:
        response.error_code = error.code
    return response
