"""AlterReplicaLogDirs (34), versions 1–2: move replicas to another data folder (KIP-113).

There is one folder: naming it for a partition that is here changes nothing, any other is LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_cluster_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.partitions.leadership import led_partition
from flintmq.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Result = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def handle(
    request: Request, message: AlterReplicaLogDirsRequest, services: Services
) -> AlterReplicaLogDirsResponse:
    may_alter = is_cluster_allowed(request, services, AclOperation.ALTER)
    # A partition that is named for several folders goes to the last of them.
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = (
                    _move(directory.path, topic.name, index, services)
                    if may_alter
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )
                codes.setdefault(topic.name, {})[index] = code
    return AlterReplicaLogDirsResponse(
        results=[
            Topic(
                topic_name=name,
                partitions=[
                    Result(partition_index=index, error_code=code) for index, code in by_index.items()
                ],
            )
            for name, by_index in codes.items()
        ]
    )


def _move(path: str, topic: str, index: int, services: Services) -> ErrorCode:
    if path != services.partitions.log_dir.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        led_partition(services.partitions, topic, index)
    except RequestError as error:
        # Kafka kept its older code here for a replica that is elsewhere.
        elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if elsewhere else error.code
    except FlintError as error:
        return error_code_of(error)
    return ErrorCode.NONE
