"""DescribeTopicHealth (15002), version 0, of FlintMQ's own: what is wrong with the partitions of a topic (S5).

Tells of the partitions led here that are not well: offline, given up by compaction, or with offsets that are refused
because their bytes are damaged; or of which retention is about to delete records that a lake table does not have.
Nothing is read from the disk for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.handlers.own.describe_topic_task import DAMAGED_MAX
from flintmq.broker.request import Request
from flintmq.broker.responses import cut
from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.maintenance.table_retention import TableOffset, table_risk
from flintmq.partitions.partition import Partition
from flintmq.protocol.messages import DescribeTopicHealthRequest, DescribeTopicHealthResponse
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.storage.corrupt_ranges import merge_ranges

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Health = DescribeTopicHealthResponse.PartitionHealth
Range = DescribeTopicHealthResponse.OffsetRange


def handle(
    request: Request, message: DescribeTopicHealthRequest, services: Services
) -> DescribeTopicHealthResponse:
    check_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, message.name)
    topic = services.metadata.image.topics.get(message.name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {message.name}.")
    led = (services.partitions.get(topic.name, index) for index in range(len(topic.partitions)))
    tables = services.groups.table_offsets_of(topic.name)
    described = (
        _health(partition, tables.get((topic.name, partition.index)), services)
        for partition in led
        if partition is not None
    )
    return DescribeTopicHealthResponse(partitions=[one for one in described if one is not None])


def _health(partition: Partition, table: TableOffset | None, services: Services) -> Health | None:
    log = partition.log
    uncleanable = services.maintenance.cleaner.uncleanable.get(partition.topic_id, {}).get(partition.index)
    risk = None if table is None else table_risk(log, services.clock.now_ms(), table)
    if log.offline is None and uncleanable is None and not log.corrupt and risk is None:
        return None
    damaged = merge_ranges(log.corrupt)
    return Health(
        partition_index=partition.index,
        offline=None if log.offline is None else cut(log.offline),
        uncleanable=None if uncleanable is None else cut(uncleanable),
        damaged_count=len(damaged),
        retention_risk=None if risk is None else cut(risk),
        damaged=[Range(first_offset=first, end_offset=end) for first, end in damaged[:DAMAGED_MAX]],
    )
