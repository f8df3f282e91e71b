"""MaintainTopic (15000), version 0, of FlintMQ's own: compact, retain or verify a topic now (R3).

Null stands for all partitions that are led here. The answer is the number of a task that works through them one by
one; DescribeTopicTask tells how far it is. What the topic's `cleanup.policy` does not allow is POLICY_VIOLATION; more
tasks at once than the broker takes are THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.leadership import led_partition
from flintmq.partitions.maintenance.scheduler import TaskAction
from flintmq.partitions.partition import Partition
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.protocol.messages import MaintainTopicRequest, MaintainTopicResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: MaintainTopicRequest, services: Services) -> MaintainTopicResponse:
    check_allowed(request, services, AclOperation.ALTER, AclResource.TOPIC, message.name)
    try:
        action = TaskAction[MaintenanceAction(message.action).name]
    except ValueError:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"There is no action {message.action}.") from None
    partitions = _partitions(message, services)
    _check_policy(action, message.name, services)
    task = services.maintenance.start(action, message.name, partitions)
    return MaintainTopicResponse(task_id=task.id)


def _partitions(message: MaintainTopicRequest, services: Services) -> list[Partition]:
    name = message.name
    topic = services.metadata.image.topics.get(name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    if message.partition_indexes is None:
        led = (services.partitions.get(name, index) for index in range(len(topic.partitions)))
        return [partition for partition in led if partition is not None]
    return [
        led_partition(services.partitions, name, index) for index in dict.fromkeys(message.partition_indexes)
    ]


def _check_policy(action: TaskAction, name: str, services: Services) -> None:
    needed = {TaskAction.COMPACT: "compact", TaskAction.RETAIN: "delete"}.get(action)
    policy = services.configs.topic(name).cleanup_policy
    if needed is not None and needed not in policy:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"The cleanup.policy of {name} is {','.join(policy) or 'empty'}; this needs {needed} in it.",
        )
