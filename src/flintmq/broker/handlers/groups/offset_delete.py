"""OffsetDelete (47), version 0: a group forgets how far it has read in topics that it does not read now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(request: Request, message: OffsetDeleteRequest, services: Services) -> None:
    image = services.metadata.image
    unknown = [
        DeletedTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for one in topic.partitions
            ],
        )
        for topic in message.topics
        if topic.name not in image.topics
    ]
    message.topics = [topic for topic in message.topics if topic.name in image.topics]

    def send_with_unknown(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics += unknown
        delayed.send(response)

    version = request.version
    delayed = DelayedResponse(request, lambda code: OffsetDeleteResponse(error_code=code))
    delayed.call(
        services.groups,
        CoordinatorCall(
            message.group_id, lambda groups, token: groups.delete_offsets(token, message, version)
        ),
        send_with_unknown,
    )
