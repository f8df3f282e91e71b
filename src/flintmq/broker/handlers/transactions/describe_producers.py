"""DescribeProducers (61), version 0: what partitions remember of idempotent and transactional producers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.topics import check_name
from flintmq.partitions.leadership import led_partition
from flintmq.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = DescribeProducersResponse.TopicResponse
Partition = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState

PRODUCERS_MAX = 100_000


def handle(
    request: Request, message: DescribeProducersRequest, services: Services
) -> DescribeProducersResponse:
    room = PRODUCERS_MAX
    topics = []
    for topic in message.topics:
        partitions = []
        for index in topic.partition_indexes:
            described = _describe(request, topic.name, index, services, room)
            room -= len(described.active_producers)
            partitions.append(described)
        topics.append(Topic(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(request: Request, topic: str, index: int, services: Services, room: int) -> Partition:
    try:
        check_name(topic)
        check_allowed(request, services, AclOperation.READ, AclResource.TOPIC, topic)
        partition = led_partition(services.partitions, topic, index)
        if len(partition.log.producers) > room:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"One answer tells of {PRODUCERS_MAX} producers; ask for fewer partitions at once.",
            )
    except FlintError as error:
        return Partition(
            partition_index=index, error_code=error_code_of(error), error_message=reason_of(error)
        )
    return Partition(
        partition_index=index,
        active_producers=[
            Producer(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in partition.log.producers
        ],
    )
