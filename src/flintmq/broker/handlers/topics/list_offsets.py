"""ListOffsets (2), versions 1–11: which offset is the first, the last, or the first of a time.

A negative timestamp is a question of its own: -1 the end that the client may see, -2 the start, -3 the record
with the largest timestamp (version 7), -4 the start of what is local (8), -5 and -6 the end of what is tiered
and the start of what is not yet (9, 11): without tiering there is neither. Another one, or one that is newer
than the request's version, is UNSUPPORTED_VERSION. What is found at or beyond the end that the client may see
(the last stable offset for read_committed) counts as not found: offset -1. The leader epoch is told from
version 4 on.

Starts and ends are known at once, because clients ask for them all the time; only lookups by time read the
disk, in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker.authorization import is_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.partitions.leadership import epoch_of_start, led_partition
from flintmq.partitions.partition import Partition
from flintmq.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from flintmq.records.topic_partition import TopicPartition
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.storage.log import Log
from flintmq.storage.timestamp_lookup import offset_for_time, offset_of_max_timestamp
from flintmq.storage.visibility import Isolation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_DESCRIBE: Final = AclOperation.DESCRIBE
_TOPIC: Final = AclResource.TOPIC

Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Result = ListOffsetsResponse.ListOffsetsPartitionResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_WITH_EPOCH: Final = 4
_FIRST_NOT_AVAILABLE: Final = 5
_CONSUMER: Final = -1


class _Lookup(NamedTuple):
    """A lookup by timestamp, and the part of the response that it fills."""

    result: Result
    partition: Partition
    timestamp: int


def handle(
    request: Request, message: ListOffsetsRequest, services: Services
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    isolation = (
        Isolation.LOG_END if message.replica_id != _CONSUMER else Isolation(message.isolation_level != 0)
    )
    repeated = _repeated(message)
    lookups: list[_Lookup] = []
    topics = []
    for topic in message.topics:
        results = []
        may_describe = is_allowed(request, services, _DESCRIBE, _TOPIC, topic.name)
        for wanted in topic.partitions:
            result = Result(partition_index=wanted.partition_index)
            results.append(result)
            if not may_describe:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (topic.name, wanted.partition_index) in repeated:
                result.error_code = ErrorCode.INVALID_REQUEST
            elif wanted.timestamp < 0 and request.version < _SINCE_VERSION.get(wanted.timestamp, 1 << 15):
                result.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    partition = led_partition(
                        services.partitions,
                        topic.name,
                        wanted.partition_index,
                        wanted.current_leader_epoch,
                    )
                except FlintError as error:
                    result.error_code = error_code_of(error)
                    continue
                if isolation is not Isolation.LOG_END and _is_unavailable(partition, wanted.timestamp):
                    result.error_code = (
                        ErrorCode.OFFSET_NOT_AVAILABLE
                        if request.version >= _FIRST_NOT_AVAILABLE
                        else ErrorCode.LEADER_NOT_AVAILABLE
                    )
                elif wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
                    lookups.append(_Lookup(result, partition, wanted.timestamp))
                else:
                    _set(request, result, *_known(partition, wanted.timestamp, isolation))
        topics.append(Topic(name=topic.name, partitions=results))
    response = ListOffsetsResponse(topics=topics)
    return _look_up(request, response, lookups, isolation, services) if lookups else response


def _is_unavailable(partition: Partition, timestamp: int) -> bool:
    """Whether a new leader does not know yet how far consumers may see (KIP-207): the offset could go back."""
    return timestamp not in (EARLIEST, EARLIEST_LOCAL) and not partition.knows_high_watermark


def _repeated(message: ListOffsetsRequest) -> set[TopicPartition]:
    """Partitions that are named more than once; which of the questions is meant cannot be said."""
    if len(message.topics) == 1 and len(message.topics[0].partitions) == 1:
        return set()
    seen: set[TopicPartition] = set()
    repeated: set[TopicPartition] = set()
    for topic in message.topics:
        for wanted in topic.partitions:
            named = (topic.name, wanted.partition_index)
            (repeated if named in seen else seen).add(named)
    return repeated


def _known(partition: Partition, marker: int, isolation: Isolation) -> tuple[int, int, int]:
    """Timestamp, offset and epoch of what needs no reading."""
    log = partition.log
    if marker == LATEST:
        return -1, _visible_end(log, isolation), partition.leader_epoch
    if marker in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, epoch_of_start(partition)
    return -1, -1, -1


def _visible_end(log: Log, isolation: Isolation) -> int:
    if isolation is Isolation.READ_UNCOMMITTED:
        return log.high_watermark
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.end_offset


def _set(request: Request, result: Result, timestamp: int, offset: int, epoch: int) -> None:
    result.timestamp = timestamp
    result.offset = offset
    if request.version >= _FIRST_WITH_EPOCH:
        result.leader_epoch = epoch


async def _look_up(
    request: Request,
    response: ListOffsetsResponse,
    lookups: list[_Lookup],
    isolation: Isolation,
    services: Services,
) -> ListOffsetsResponse:
    for result, partition, timestamp in lookups:
        log = partition.log
        # The end is taken first: what is appended while the disk is read was not there when the client asked.
        visible_end = _visible_end(log, isolation)
        try:
            if timestamp == MAX_TIMESTAMP:
                found = await services.timestamp_lookups.run(services.executor, offset_of_max_timestamp, log)
            else:
                found = await services.timestamp_lookups.run(
                    services.executor, offset_for_time, log, timestamp
                )
        except (FlintError, OSError) as error:
            result.error_code = error_code_of(error)
            continue
        if found is not None and found.offset < visible_end:
            _set(request, result, found.timestamp, found.offset, found.leader_epoch)
    return response
