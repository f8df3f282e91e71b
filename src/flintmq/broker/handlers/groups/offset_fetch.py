"""OffsetFetch (9), versions 1–10: the offsets that groups have committed.

Several groups from version 8 on, all topics of a group where none is named, topics by id from version 10 on. With
`require_stable` an offset that an open transaction may replace is refused for now (KIP-447).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.groups.offset_commits import NO_OFFSET, fetch_response, fetched_groups
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_SEVERAL: Final = 8
_FIRST_TOPIC_IDS: Final = 10

Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topics = OffsetFetchResponse.OffsetFetchResponseTopics
Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions


def handle(request: Request, message: OffsetFetchRequest, services: Services) -> None:
    version = request.version
    asked = fetched_groups(message, version)
    unknown: dict[int, list[Topics]] = {}
    if version >= _FIRST_TOPIC_IDS:
        for at, group in enumerate(asked):
            unknown[at] = _name_topics(group, services)

    def failed(at: int, code: ErrorCode) -> OffsetFetchResponse:
        return fetch_response(Group(group_id=asked[at].group_id, error_code=code), version)

    def whole(parts: list[OffsetFetchResponse]) -> OffsetFetchResponse:
        if version < _FIRST_SEVERAL:
            return parts[0]
        groups = [part.groups[0] for part in parts]
        for at, group in enumerate(groups):
            if version >= _FIRST_TOPIC_IDS:
                _add_ids(group, services)
                group.topics += unknown[at]
        return OffsetFetchResponse(groups=groups)

    call_for_each(
        request,
        services,
        services.groups,
        len(asked),
        lambda at: CoordinatorCall(
            asked[at].group_id,
            lambda groups, token: groups.fetch_offsets(
                token, asked[at], version, require_stable=message.require_stable
            ),
        ),
        failed,
        whole,
    )


def _name_topics(group: OffsetFetchRequest.OffsetFetchRequestGroup, services: Services) -> list[Topics]:
    """Give the topics of a request their names; those that there are none of are taken out and answered here."""
    unknown: list[Topics] = []
    if group.topics is None:
        return unknown
    known = []
    for topic in group.topics:
        found = services.metadata.image.topics_by_id.get(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        unknown.append(
            Topics(
                topic_id=topic.topic_id,
                partitions=[
                    Partitions(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    group.topics = known
    return unknown


def _add_ids(group: Group, services: Services) -> None:
    """Topics by their ids; one that is gone has none, and is left out."""
    image = services.metadata.image
    group.topics = [topic for topic in group.topics if topic.name in image.topics]
    for topic in group.topics:
        topic.topic_id = image.topics[topic.name].id
