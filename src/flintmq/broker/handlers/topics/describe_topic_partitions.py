"""DescribeTopicPartitions (75), version 0: topics and their partitions, page by page (KIP-966).

Topics come in the order of their names; no topics means all. A page ends at the limit of the request or of
`max.request.partition.size.limit`, whichever is less, and its cursor says where the next begins. A cursor that
names a negative partition, or a topic that is not among those asked for, refuses the request: each topic is
answered INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import authorized_operations, is_allowed, is_visible
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.image import TopicImage
from flintmq.metadata.topics import check_name
from flintmq.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    request: Request, message: DescribeTopicPartitionsRequest, services: Services
) -> DescribeTopicPartitionsResponse:
    topics = services.metadata.image.topics
    cursor = message.cursor
    first = cursor.topic_name if cursor is not None else ""
    names = sorted(name for name in ({one.name for one in message.topics} or topics) if name >= first)
    if cursor is not None and (
        cursor.partition_index < 0 or (message.topics and (not names or names[0] != cursor.topic_name))
    ):
        return DescribeTopicPartitionsResponse(
            topics=[Topic(name=one.name, error_code=ErrorCode.INVALID_REQUEST) for one in message.topics]
        )
    limit = services.configs.broker.max_request_partition_size_limit
    remaining = max(1, min(limit, message.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    denied = _denied(request, message, names, services)
    for name in names:
        if name in denied:
            continue
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_unknown(request, name, services))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        end = min(len(topic.partitions), start + remaining)
        response.topics.append(_describe(request, topic, start, end, services))
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= len(response.topics[-1].partitions)
    if message.topics:
        response.topics += [
            Topic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in sorted(denied)
        ]
    return response


def _denied(
    request: Request, message: DescribeTopicPartitionsRequest, names: list[str], services: Services
) -> set[str]:
    """Return the topics that the client may not describe; not even whether they exist is disclosed."""
    if message.topics:
        return {
            name
            for name in names
            if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        }
    return {name for name in names if not is_visible(request, services, AclResource.TOPIC, name)}


def _describe(request: Request, topic: TopicImage, start: int, end: int, services: Services) -> Topic:
    image = services.metadata.image
    return Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            Partition(
                error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                eligible_leader_replicas=state.value.elr,
                last_known_elr=state.value.last_known_elr,
                offline_replicas=image.offline_replicas(state),
            )
            for index, state in enumerate(topic.partitions[start:end], start)
            for leader in (image.available_leader(state),)
        ],
        topic_authorized_operations=authorized_operations(request, services, AclResource.TOPIC, topic.name),
    )


def _unknown(request: Request, name: str, services: Services) -> Topic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except RequestError as error:
        code = error.code
    operations = authorized_operations(request, services, AclResource.TOPIC, name)
    return Topic(name=name, error_code=code, topic_authorized_operations=operations)
