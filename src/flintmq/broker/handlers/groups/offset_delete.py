"""OffsetDelete (47), version 0: a group forgets how far it has read in topics that it does not read now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(request: Request, message: OffsetDeleteRequest, services: Services) -> OffsetDeleteResponse | None:
    if not is_allowed(request, services, AclOperation.DELETE, AclResource.GROUP, message.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    codes = {topic.name: _refusal(request, topic.name, services) for topic in message.topics}
    refused = [
        DeletedTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=codes[topic.name]
                )
                for one in topic.partitions
            ],
        )
        for topic in message.topics
        if codes[topic.name]
    ]
    message.topics = [topic for topic in message.topics if not codes[topic.name]]

    def send_with_refused(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics += refused
        delayed.send(response)

    version = request.version
    delayed = DelayedResponse(request, lambda code: OffsetDeleteResponse(error_code=code))
    delayed.call(
        services.groups,
        CoordinatorCall(
            message.group_id, lambda groups, token: groups.delete_offsets(token, message, version)
        ),
        send_with_refused,
    )
    return None


def _refusal(request: Request, topic: str, services: Services) -> ErrorCode:
    """Return why the offsets of a topic cannot be deleted; NONE if they can."""
    if not is_allowed(request, services, AclOperation.READ, AclResource.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic not in services.metadata.image.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
