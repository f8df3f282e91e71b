"""OffsetDelete (47), version 0: a group forgets how far it has read in topics that it does not read now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import ask_group
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Answered = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(request: Request, message: OffsetDeleteRequest, services: Services) -> None:
    image = services.metadata.image
    unknown = [
        Answered(
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

    def with_unknown(answer: Message) -> Message:
        assert isinstance(answer, OffsetDeleteResponse)
        if not answer.error_code:
            answer.topics += unknown
        return answer

    version = request.version
    ask_group(
        request,
        services,
        message.group_id,
        lambda groups, token: groups.delete_offsets(token, message, version),
        lambda code: OffsetDeleteResponse(error_code=code),
        with_unknown,
    )
