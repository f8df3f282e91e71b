"""OffsetFetch (9), versions 1–10: the offsets that groups have committed.

Several groups from version 8 on, all topics of a group where none is named, topics by id from version 10 on. With
`require_stable` an offset that an open transaction may replace is refused for now (KIP-447).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed, is_visible
from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.coordinator.groups.offset_commits import NO_OFFSET, fetch_response, fetched_groups
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_DESCRIBE: Final = AclOperation.DESCRIBE
_GROUP: Final = AclResource.GROUP
_TOPIC: Final = AclResource.TOPIC

_FIRST_WITH_ERROR: Final = 2
_FIRST_SEVERAL: Final = 8
_FIRST_TOPIC_IDS: Final = 10

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topics = OffsetFetchResponse.OffsetFetchResponseTopics
Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(request: Request, message: OffsetFetchRequest, services: Services) -> None:
    version = request.version
    asked = fetched_groups(message, version)
    # Topics that are not read: unknown ids, and topics that the client may not describe.
    refused: dict[int, list[Topics]] = {}
    denied: set[int] = set()
    hides_topics = services.authorizer is not None
    if version >= _FIRST_TOPIC_IDS or hides_topics:
        for at, group in enumerate(asked):
            if not is_allowed(request, services, _DESCRIBE, _GROUP, group.group_id):
                denied.add(at)
                continue
            refused[at] = _take_refused(request, group, services, by_id=version >= _FIRST_TOPIC_IDS)

    def fetch(at: int) -> CoordinatorCall[GroupMachine] | OffsetFetchResponse:
        group = asked[at]
        if at in denied:
            return _group_failure(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
        return CoordinatorCall(
            group.group_id,
            lambda groups, token: groups.fetch_offsets(
                token, group, version, require_stable=message.require_stable
            ),
        )

    def failed(at: int, code: ErrorCode) -> OffsetFetchResponse:
        return fetch_response(Group(group_id=asked[at].group_id, error_code=code), version)

    def whole(parts: list[OffsetFetchResponse]) -> OffsetFetchResponse:
        if version < _FIRST_SEVERAL:
            if hides_topics and not denied and not parts[0].error_code:
                _complete_single(request, parts[0], asked[0], refused[0], services)
            return parts[0]
        groups = [part.groups[0] for part in parts]
        for at, group in enumerate(groups):
            if hides_topics and asked[at].topics is None:
                group.topics = [
                    topic for topic in group.topics if is_visible(request, services, _TOPIC, topic.name)
                ]
            if version >= _FIRST_TOPIC_IDS:
                _add_ids(group, services)
            if not group.error_code:
                group.topics += refused.get(at, ())
        return OffsetFetchResponse(groups=groups)

    call_for_each(
        request,
        services,
        services.groups,
        len(asked),
        fetch,
        failed,
        whole,
    )


def _group_failure(group: AskedGroup, code: ErrorCode, version: int) -> OffsetFetchResponse:
    """Return the error of a whole group; version 1 has no field for it but those of its partitions."""
    if version >= _FIRST_WITH_ERROR:
        return fetch_response(Group(group_id=group.group_id, error_code=code), version)
    topics = [_refusal(topic, code) for topic in group.topics or ()]
    return fetch_response(Group(group_id=group.group_id, topics=topics), version)


def _take_refused(request: Request, group: AskedGroup, services: Services, *, by_id: bool) -> list[Topics]:
    """Take out of the request what is not to be read, and return its part of the response. Ids become names."""
    refused: list[Topics] = []
    if group.topics is None:
        return refused
    known = []
    for topic in group.topics:
        if by_id:
            found = services.metadata.image.topics_by_id.get(topic.topic_id)
            if found is None:
                refused.append(_refusal(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            topic.name = found.name
        if is_allowed(request, services, _DESCRIBE, _TOPIC, topic.name):
            known.append(topic)
        else:
            refused.append(_refusal(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    group.topics = known
    return refused


def _refusal(topic: OffsetFetchRequest.OffsetFetchRequestTopics, code: ErrorCode) -> Topics:
    return Topics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            Partitions(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)
            for index in topic.partition_indexes
        ],
    )


def _complete_single(
    request: Request,
    response: OffsetFetchResponse,
    group: AskedGroup,
    refused: list[Topics],
    services: Services,
) -> None:
    """Hide topics from the response of a version for one group, or add those that were refused."""
    if group.topics is None:
        response.topics = [
            topic for topic in response.topics if is_visible(request, services, _TOPIC, topic.name)
        ]
    response.topics += fetch_response(Group(group_id=group.group_id, topics=refused), 0).topics


def _add_ids(group: Group, services: Services) -> None:
    """Topics by their ids; one that is gone has none, and is left out."""
    image = services.metadata.image
    group.topics = [topic for topic in group.topics if topic.name in image.topics]
    for topic in group.topics:
        topic.topic_id = image.topics[topic.name].id
