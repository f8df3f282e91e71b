"""DescribeProducers (61), version 0: what partitions remember of idempotent and transactional producers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.answers import error_code_of
from flintmq.broker.request import Request
from flintmq.cluster.leadership import led_partition
from flintmq.cluster.topics import check_name
from flintmq.errors import FlintError
from flintmq.protocol.messages import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = DescribeProducersResponse.TopicResponse
Partition = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState


def handle(
    request: Request, message: DescribeProducersRequest, services: Services
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            Topic(
                name=topic.name,
                partitions=[_describe(topic.name, index, services) for index in topic.partition_indexes],
            )
            for topic in message.topics
        ]
    )


def _describe(topic: str, index: int, services: Services) -> Partition:
    try:
        check_name(topic)
        partition = led_partition(services.partitions, services.metadata.image, topic, index)
    except FlintError as error:
        return Partition(partition_index=index, error_code=error_code_of(error), error_message=str(error))
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
