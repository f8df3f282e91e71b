"""DeleteRecords (21), versions 0–2: let partitions begin at a later offset (KIP-107).

Offset -1 means the high watermark; beyond it, or below 0, is OFFSET_OUT_OF_RANGE, while an offset that is gone
already changes nothing. The answer is the offset at which the partition begins now, and comes when that is on
stable storage. Records of internal topics and of topics that are only compacted cannot be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.partitions.leadership import led_partition
from flintmq.partitions.partition import Partition
from flintmq.partitions.record_deletion import delete_records, new_start
from flintmq.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(
    request: Request, message: DeleteRecordsRequest, services: Services
) -> DeleteRecordsResponse:
    topics = []
    accepted: list[tuple[Result, Partition, int]] = []
    for topic in message.topics:
        results = []
        is_deletable = is_allowed(request, services, AclOperation.DELETE, AclResource.TOPIC, topic.name)
        for wanted in topic.partitions:
            result = Result(partition_index=wanted.partition_index, low_watermark=-1)
            results.append(result)
            if not is_deletable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            try:
                partition = _partition(topic.name, wanted.partition_index, services)
                accepted.append((result, partition, new_start(partition, wanted.offset)))
            except FlintError as error:
                result.error_code = error_code_of(error)
        topics.append(Topic(name=topic.name, partitions=results))
    if accepted:
        await _delete(accepted, message.timeout_ms / 1000, services)
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    accepted: list[tuple[Result, Partition, int]], timeout_s: float, services: Services
) -> None:
    try:
        await delete_records(
            [(partition, start) for _, partition, start in accepted],
            log_dir=services.partitions.log_dir,
            executor=services.executor,
        )
    except (FlintError, OSError) as error:
        for result, _, _ in accepted:
            result.error_code = error_code_of(error)
        return
    replication = services.replication
    for result, partition, start in accepted:
        try:
            if replication is not None:
                await replication.deleted_everywhere(partition, start, timeout_s)
        except RequestError as error:
            result.error_code = error.code
        else:
            result.low_watermark = partition.log.start_offset


def _partition(topic: str, index: int, services: Services) -> Partition:
    partition = led_partition(services.partitions, topic, index)
    if services.metadata.image.topics[topic].is_internal:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Records of {topic} cannot be deleted.")
    return partition
