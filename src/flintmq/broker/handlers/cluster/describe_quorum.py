"""DescribeQuorum (55), versions 0–2: who keeps the cluster's metadata (KIP-595, KIP-836, KIP-853).

A single broker is its own quorum: the one voter of partition 0 of `__cluster_metadata`, whose offsets are the
revisions of the metadata store. Asked for anything else, or for more, every partition is unknown. From version
2 on the answer tells where the voters are, as the client reaches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = DescribeQuorumResponse.TopicData
Partition = DescribeQuorumResponse.PartitionData
Voter = DescribeQuorumResponse.ReplicaState
Node = DescribeQuorumResponse.Node
Listener = DescribeQuorumResponse.Listener

METADATA_TOPIC = "__cluster_metadata"
_EPOCH = 1
_FIRST_WITH_TIMES = 1
_FIRST_WITH_NODES = 2


def handle(request: Request, message: DescribeQuorumRequest, services: Services) -> DescribeQuorumResponse:
    check_cluster_allowed(request, services, AclOperation.DESCRIBE)
    asked = [(topic.topic_name, one.partition_index) for topic in message.topics for one in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(message)
    voter = Voter(replica_id=services.node_id, log_end_offset=services.metadata.image.revision)
    if request.version >= _FIRST_WITH_TIMES:
        voter.last_fetch_timestamp = voter.last_caught_up_timestamp = services.clock.now_ms()
    partition = Partition(
        partition_index=0,
        leader_id=services.node_id,
        leader_epoch=_EPOCH,
        high_watermark=services.metadata.image.revision,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(topics=[Topic(topic_name=METADATA_TOPIC, partitions=[partition])])
    if request.version >= _FIRST_WITH_NODES:
        session = request.session
        response.nodes = [
            Node(
                node_id=endpoint.node_id,
                listeners=[Listener(name=session.listener, host=endpoint.host, port=endpoint.port)],
            )
            for endpoint in services.endpoints.of(session)
        ]
    return response


def _unknown(message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            Topic(
                topic_name=topic.topic_name,
                partitions=[
                    Partition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
