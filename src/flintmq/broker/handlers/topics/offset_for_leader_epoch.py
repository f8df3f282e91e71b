"""OffsetForLeaderEpoch (23), versions 2–4: where a leader epoch ended, so that a reader notices truncation.

KIP-101, KIP-279, KIP-320. The answer is the largest known epoch that is not newer than the one asked for, and
the offset after its last record; both are -1 where nothing is known. The log's end bounds it, not the high
watermark, because replicas ask too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed, is_cluster_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.partitions.leadership import end_of_epoch, led_partition
from flintmq.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEnd = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    request: Request, message: OffsetForLeaderEpochRequest, services: Services
) -> OffsetForLeaderEpochResponse:
    everywhere = is_cluster_allowed(request, services, AclOperation.CLUSTER_ACTION, counted=False)
    allowed = {
        topic.topic: everywhere
        or is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)
        for topic in message.topics
    }
    return OffsetForLeaderEpochResponse(
        topics=[
            Topic(
                topic=topic.topic,
                partitions=[
                    _end(topic.topic, wanted, services, may_describe=allowed[topic.topic])
                    for wanted in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _end(
    topic: str,
    wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
    services: Services,
    *,
    may_describe: bool,
) -> EpochEnd:
    try:
        if not may_describe:
            raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = led_partition(services.partitions, topic, wanted.partition, wanted.current_leader_epoch)
    except FlintError as error:
        return EpochEnd(
            partition=wanted.partition, error_code=error_code_of(error), leader_epoch=-1, end_offset=-1
        )
    epoch, end_offset = end_of_epoch(partition, wanted.leader_epoch)
    return EpochEnd(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
