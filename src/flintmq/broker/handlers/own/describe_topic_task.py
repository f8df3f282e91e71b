"""DescribeTopicTask (15001), version 0, of FlintMQ's own: how far a task that MaintainTopic began is.

Answered when the task is over, or after the time that the client is willing to wait, a second at most. A task that is
not known, or not any more, is RESOURCE_NOT_FOUND: the broker keeps the last ones until it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import cut
from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.maintenance.scheduler import MaintenanceTask, PartitionTask
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState
from flintmq.protocol.messages import DescribeTopicTaskRequest, DescribeTopicTaskResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

DescribedPartition = DescribeTopicTaskResponse.TaskPartition
Range = DescribeTopicTaskResponse.OffsetRange

WAIT_MS_MAX = 1000
DAMAGED_MAX = 100
"""Ranges that are told of one partition, besides how many there are."""
_PARTITIONS_PER_TURN = 500


def handle(
    request: Request, message: DescribeTopicTaskRequest, services: Services
) -> DescribeTopicTaskResponse | Awaitable[DescribeTopicTaskResponse]:
    task = services.maintenance.find(message.task_id)
    if task is None:
        raise RequestError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"There is no task {message.task_id}; the broker may have been started anew.",
        )
    if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, task.topic):
        # Without the name: the client has only guessed a number.
        raise RequestError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{request.session.principal} needs an ACL that allows DESCRIBE on the topic of the task.",
        )
    wait_ms = 0 if task.is_over else min(message.max_wait_ms, WAIT_MS_MAX)
    if wait_ms <= 0 and len(task.partitions) <= _PARTITIONS_PER_TURN:
        return _response(task, task.is_over, [_described(part) for part in task.partitions])
    return _wait_and_respond(task, wait_ms, services)


async def _wait_and_respond(
    task: MaintenanceTask, wait_ms: int, services: Services
) -> DescribeTopicTaskResponse:
    if wait_ms > 0:
        try:
            await asyncio.wait_for(task.over.wait(), wait_ms / 1000)
        except TimeoutError:
            pass
    if len(task.partitions) <= _PARTITIONS_PER_TURN:
        return _response(task, task.is_over, [_described(part) for part in task.partitions])
    async with services.describing:
        # What is said of the whole is not newer than what is said of its parts.
        is_over = task.is_over
        described: list[DescribedPartition] = []
        for first in range(0, len(task.partitions), _PARTITIONS_PER_TURN):
            described += [_described(part) for part in task.partitions[first : first + _PARTITIONS_PER_TURN]]
            await asyncio.sleep(0)
        return _response(task, is_over, described)


def _response(
    task: MaintenanceTask, is_over: bool, described: list[DescribedPartition]
) -> DescribeTopicTaskResponse:
    return DescribeTopicTaskResponse(
        name=task.topic,
        action=MaintenanceAction[task.action.name],
        is_over=is_over,
        partitions=described,
    )


def _described(part: PartitionTask) -> DescribedPartition:
    return DescribedPartition(
        partition_index=part.index,
        state=MaintenanceState[part.state.name],
        phase=part.phase,
        bytes_done=part.bytes_done,
        bytes_total=part.bytes_total,
        bytes_before=part.bytes_before,
        bytes_after=part.bytes_after,
        records_before=part.records_before,
        records_after=part.records_after,
        damaged_count=len(part.damaged),
        damaged=[Range(first_offset=first, end_offset=end) for first, end in part.damaged[:DAMAGED_MAX]],
        failure=cut(part.error) if part.error else None,
    )
