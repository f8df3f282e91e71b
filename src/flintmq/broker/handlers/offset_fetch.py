"""OffsetFetch (9), versions 1–10: the offsets that a group has committed.

Groups cannot commit in this version (OffsetCommit is not served), so no partition has an offset, which is what
a client with a `group.id` that assigns its own partitions must be told before it starts to read. Several
groups from version 8 on; topics by id from version 10 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

NO_OFFSET = -1
_FIRST_SEVERAL = 8
_FIRST_TOPIC_IDS = 10

Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topics = OffsetFetchResponse.OffsetFetchResponseTopics
Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(request: Request, message: OffsetFetchRequest, services: Services) -> OffsetFetchResponse:
    if request.version >= _FIRST_SEVERAL:
        by_id = request.version >= _FIRST_TOPIC_IDS
        return OffsetFetchResponse(groups=[_group(group, by_id, services) for group in message.groups])
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata=""
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ]
    )


def _group(group: OffsetFetchRequest.OffsetFetchRequestGroup, by_id: bool, services: Services) -> Group:
    answer = Group(group_id=group.group_id)
    for topic in group.topics or ():
        known = not by_id or topic.topic_id in services.metadata.image.topics_by_id
        code = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_ID
        answer.topics.append(
            Topics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Partitions(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    return answer
