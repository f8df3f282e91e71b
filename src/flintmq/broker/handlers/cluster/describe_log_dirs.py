"""DescribeLogDirs (35), versions 1–5: the data folder, what is in it and what room is left (KIP-113, KIP-827).

Null asks for all partitions; those that are not here are left out. There is one folder, never cordoned
(version 5), and no partition is on its way into another. An offline log has a lag of -1: it is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.errors import error_code_of
from flintmq.partitions.partition import Partition
from flintmq.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

LogDirResult = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Described = DescribeLogDirsResponse.DescribeLogDirsPartition

_INT64_MAX = (1 << 63) - 1


async def handle(
    request: Request, message: DescribeLogDirsRequest, services: Services
) -> DescribeLogDirsResponse:
    check_cluster_allowed(request, services, AclOperation.DESCRIBE)
    path = services.partitions.log_dir.path
    try:
        total, usable = await services.executor.run(services.disk.usage, path)
    except OSError as error:
        return DescribeLogDirsResponse(results=[LogDirResult(log_dir=path, error_code=error_code_of(error))])
    topics: dict[str, list[Described]] = {}
    for partition in _selected(message, services):
        topics.setdefault(partition.topic, []).append(_describe(partition))
    directory = LogDirResult(
        log_dir=path,
        topics=[Topic(name=name, partitions=described) for name, described in topics.items()],
        total_bytes=min(total, _INT64_MAX),
        usable_bytes=min(usable, _INT64_MAX),
    )
    return DescribeLogDirsResponse(results=[directory])


def _selected(message: DescribeLogDirsRequest, services: Services) -> list[Partition]:
    if message.topics is None:
        return list(services.partitions)
    wanted = dict.fromkeys((topic.topic, index) for topic in message.topics for index in topic.partitions)
    found = (services.partitions.get(topic, index) for topic, index in wanted)
    return [partition for partition in found if partition is not None]


def _describe(partition: Partition) -> Described:
    log = partition.log
    return Described(
        partition_index=partition.index,
        partition_size=log.size,
        offset_lag=max(log.high_watermark - log.end_offset, 0) if log.offline is None else -1,
    )
