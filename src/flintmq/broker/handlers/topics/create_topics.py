"""CreateTopics (19), versions 2–7: new topics, each made or refused on its own.

A partition count or replication factor of -1 takes the broker's default (KIP-464); replicas may be placed by
hand instead. `validate_only` answers as if the topics were made, with no topic id. From version 5 on the
answer tells partitions, replicas and settings in force (KIP-525), from version 7 on the topic's id. A name that
comes twice is refused. Topics that do not depend on each other are written together.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flintmq.broker.authorization import (
    authorized_operations,
    denial,
    is_allowed,
    is_cluster_allowed,
)
from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.topics import NewTopic, check_total
from flintmq.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from flintmq.records.uuids import ZERO_UUID
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.settings import describe_topic

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = CreateTopicsResponse.CreatableTopicResult
Config = CreateTopicsResponse.CreatableTopicConfigs

_FIRST_WITH_DETAILS = 5


async def handle(request: Request, message: CreateTopicsRequest, services: Services) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in message.topics)
    single = [topic for topic in message.topics if counts[topic.name] == 1]
    anywhere = is_cluster_allowed(request, services, AclOperation.CREATE, counted=False)
    allowed = [topic for topic in single if anywhere or _may_create(request, topic.name, services)]
    results = await _results(request, message, allowed, services)
    if len(allowed) < len(single):
        created = {topic.name for topic in allowed}
        results += [
            _failure(topic.name, denial(request, AclOperation.CREATE, AclResource.TOPIC, topic.name))
            for topic in single
            if topic.name not in created
        ]
    results += [
        Result(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    return CreateTopicsResponse(topics=results)


def _may_create(request: Request, name: str, services: Services) -> bool:
    return is_allowed(request, services, AclOperation.CREATE, AclResource.TOPIC, name)


async def _results(
    request: Request,
    message: CreateTopicsRequest,
    topics: list[CreateTopicsRequest.CreatableTopic],
    services: Services,
) -> list[Result]:
    try:
        check_total(
            # One that asks for none will be refused, but is counted: it costs as much to look at.
            (len(topic.assignments) or topic.num_partitions or 1 for topic in topics),
            default=services.configs.broker.num_partitions,
        )
    except RequestError as error:
        return [_failure(topic.name, error) for topic in topics]
    details = _Details(services) if request.version >= _FIRST_WITH_DETAILS else None
    return await gather_in_turns(
        _create(request, topic, services, details, validate_only=message.validate_only) for topic in topics
    )


async def _create(
    request: Request,
    topic: CreateTopicsRequest.CreatableTopic,
    services: Services,
    details: _Details | None,
    *,
    validate_only: bool,
) -> Result:
    try:
        new = _new_topic(topic)
        placed = services.topics.plan(new)
        result = Result(name=new.name, topic_id=ZERO_UUID, error_message=None)
        if not validate_only:
            result.topic_id = (await services.topics.create(new)).id
    except (FlintError, OSError) as error:
        return _failure(topic.name, error)
    if details is None:
        return result
    operations = authorized_operations(request, services, AclResource.TOPIC, new.name)
    if operations >> AclOperation.DESCRIBE_CONFIGS & 1:
        result.num_partitions = len(placed)
        result.replication_factor = len(placed[0])
        result.configs = details.settings(new)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return result


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    assignments = {assigned.partition_index: assigned.broker_ids for assigned in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once.")
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {config.name: config.value for config in topic.configs},
    )


class _Details:
    """The settings in force of new topics: many topics of a request have the same, which are told once."""

    def __init__(self, services: Services) -> None:
        self._values, self._config = services.configs.values, services.configs.broker
        self._known: dict[tuple[tuple[str, str], ...], list[Config]] = {}

    def settings(self, new: NewTopic) -> list[Config]:
        overrides = {name: value for name, value in new.configs.items() if value is not None}
        key = tuple(sorted(overrides.items()))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = [
                Config(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in sorted(
                    describe_topic(overrides, self._values, config=self._config), key=lambda entry: entry.name
                )
            ]
        return found


def _failure(name: str, error: Exception) -> Result:
    return Result(name=name, error_code=error_code_of(error), error_message=reason_of(error))
