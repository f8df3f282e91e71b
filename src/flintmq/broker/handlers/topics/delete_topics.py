"""DeleteTopics (20), versions 1–6: topics by name, or from version 6 on by id.

A topic is gone for clients when the answer comes; its files follow. A name or id that comes twice, and a topic
named both ways, is refused. Where `delete.topic.enable` is false every topic is refused: with
TOPIC_DELETION_DISABLED, and before version 3, which does not know it, with INVALID_REQUEST. From version 5 on topics
beyond the client's `controller_mutation_rate` get THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed, is_cluster_allowed, is_visible
from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.broker.throttling import MutationQuota
from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.metadata.image import TopicImage
from flintmq.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from flintmq.records.uuids import ZERO_UUID
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

State = DeleteTopicsRequest.DeleteTopicState
Result = DeleteTopicsResponse.DeletableTopicResult

_FIRST_WITH_DISABLED = 3
_FIRST_WITH_QUOTA_ERROR = 5


async def handle(request: Request, message: DeleteTopicsRequest, services: Services) -> DeleteTopicsResponse:
    wanted = message.topics or [State(name=name, topic_id=ZERO_UUID) for name in message.topic_names]
    if not services.configs.broker.delete_topic_enable:
        known = request.version >= _FIRST_WITH_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(
            responses=[_refusal(one, code, "delete.topic.enable is false.") for one in wanted]
        )
    results, found = _find(request, wanted, services)
    quota = MutationQuota(request, _FIRST_WITH_QUOTA_ERROR)
    results += await gather_in_turns(_delete(topic, services, quota) for topic in found)
    return DeleteTopicsResponse(responses=results)


def _find(request: Request, wanted: list[State], services: Services) -> tuple[list[Result], list[TopicImage]]:
    """What is refused at once, and the topics to delete."""
    image = services.metadata.image
    refused: list[Result] = []
    found: dict[bytes, TopicImage] = {}
    counts = Counter((one.name, one.topic_id) for one in wanted)
    repeated: set[bytes] = set()
    access = _Access(request, services)
    for (name, topic_id), count in counts.items():
        one = State(name=name, topic_id=topic_id)
        by_id = name is None
        topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        if by_id and topic_id == ZERO_UUID:
            problem = _refusal(one, ErrorCode.INVALID_REQUEST, "Neither a topic's name nor its id is given.")
        elif not by_id and topic_id != ZERO_UUID:
            problem = _refusal(one, ErrorCode.INVALID_REQUEST, "Both a topic's name and its id are given.")
        elif count > 1:
            problem = _refusal(
                one, ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}."
            )
        elif (name is not None and not access.may_see(name)) or (
            topic is not None and not access.may_delete(topic.name)
        ):
            # By its id a topic tells its name only to a client that may know it.
            known = topic.name if by_id and topic is not None and access.may_see(topic.name) else name
            problem = _refusal(
                State(name=known, topic_id=topic_id),
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{request.session.principal} needs an ACL that allows DELETE on the topic.",
            )
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            problem = _refusal(one, code, "The topic does not exist.")
        elif topic.id in found or topic.id in repeated:
            found.pop(topic.id, None)
            repeated.add(topic.id)
            one = State(name=topic.name, topic_id=topic.id)
            problem = _refusal(
                one, ErrorCode.INVALID_REQUEST, "The topic is given by its name and by its id."
            )
        else:
            found[topic.id] = topic
            continue
        refused.append(problem)
    return refused, list(found.values())


class _Access:
    """What the client may do to topics: everything if the cluster's right DELETE is given."""

    def __init__(self, request: Request, services: Services) -> None:
        self._request = request
        self._services = services
        self._everywhere = is_cluster_allowed(request, services, AclOperation.DELETE, counted=False)

    def may_see(self, name: str) -> bool:
        return self._everywhere or is_visible(self._request, self._services, AclResource.TOPIC, name)

    def may_delete(self, name: str) -> bool:
        return self._everywhere or is_allowed(
            self._request, self._services, AclOperation.DELETE, AclResource.TOPIC, name
        )


async def _delete(topic: TopicImage, services: Services, quota: MutationQuota) -> Result:
    try:
        quota.record(len(topic.partitions))
        await services.topics.delete(topic)
    except (FlintError, OSError) as error:
        return Result(
            name=topic.name,
            topic_id=topic.id,
            error_code=error_code_of(error),
            error_message=reason_of(error),
        )
    return Result(name=topic.name, topic_id=topic.id)


def _refusal(one: State, code: ErrorCode, why: str) -> Result:
    return Result(name=one.name, topic_id=one.topic_id, error_code=code, error_message=why)
