"""OffsetCommit (8), versions 2–10: a group remembers how far it has read (Z7).

Partitions that do not exist are refused one by one; the others are committed. Topics by id from version 10 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.coordinator.groups.offset_commits import commit_refused
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_READ: Final = AclOperation.READ
_GROUP: Final = AclResource.GROUP
_TOPIC: Final = AclResource.TOPIC

_FIRST_TOPIC_IDS: Final = 10

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic


def handle(request: Request, message: OffsetCommitRequest, services: Services) -> OffsetCommitResponse | None:
    if not is_allowed(request, services, _READ, _GROUP, message.group_id):
        return commit_refused(message, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    by_id = request.version >= _FIRST_TOPIC_IDS
    refused: list[CommittedTopic] = []
    message.topics = [
        known
        for topic in message.topics
        if (known := _known_part(request, topic, refused, services, by_id=by_id)) is not None
    ]
    if not message.topics and refused:
        return OffsetCommitResponse(topics=refused)

    def with_refused(response: OffsetCommitResponse) -> OffsetCommitResponse:
        committed = {(one.name, one.topic_id): one for one in response.topics}
        for topic in refused:
            same = committed.get((topic.name, topic.topic_id))
            if same is None:
                response.topics.append(topic)
            else:
                same.partitions += topic.partitions
        return response

    version = request.version
    delayed = DelayedResponse(request, lambda code: with_refused(commit_refused(message, code)))
    delayed.call(
        services.groups,
        CoordinatorCall(
            message.group_id,
            lambda groups, token: groups.commit_offsets(token, message, version, services.clock.now_ms()),
        ),
        lambda response: delayed.send(with_refused(response)),
    )
    return None


def _known_part(
    request: Request, topic: Topic, refused: list[CommittedTopic], services: Services, *, by_id: bool
) -> Topic | None:
    """The topic with the partitions that exist and may be read, or None; the rest is added to `refused`."""
    image = services.metadata.image
    found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    count = len(found.partitions) if found is not None else 0
    name = topic.name if not by_id else found.name if found is not None else None
    if name is not None and not is_allowed(request, services, _READ, _TOPIC, name):
        error, count, found = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, None
    missing = [one for one in topic.partitions if not 0 <= one.partition_index < count]
    if missing:
        refused.append(
            CommittedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=error
                    )
                    for one in missing
                ],
            )
        )
        topic.partitions = [one for one in topic.partitions if 0 <= one.partition_index < count]
    if found is None or (missing and not topic.partitions):
        return None
    topic.name, topic.topic_id = found.name, found.id
    return topic
