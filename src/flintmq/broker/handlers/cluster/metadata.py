"""Metadata (3), versions 0–13: brokers, topics, leaders; topics are made on the way if allowed (Z3).

No topics means all of them in version 0, and none from version 1 on, where null means all. Topics may be
named by id from version 12 on. A topic that is made is answered at once. One request
makes no more topics than CreateTopics would; the rest are unknown, until they are asked for again, and so is one that
was deleted since it was last asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from flintmq.broker.authorization import (
    authorized_operations,
    cluster_authorized_operations,
    is_allowed,
    is_cluster_allowed,
    is_visible,
)
from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.broker.throttling import NEVER_REJECTED, MutationQuota
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.image import TopicImage
from flintmq.metadata.topics import REQUEST_PARTITIONS_MAX, NewTopic, check_name
from flintmq.protocol.messages import MetadataRequest, MetadataResponse
from flintmq.records.uuids import ZERO_UUID
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = MetadataRequest.MetadataRequestTopic
Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition

_FIRST_BY_ID = 12


def handle(
    request: Request, message: MetadataRequest, services: Services
) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = services.metadata.image.topics
    if message.topics is None or (request.version == 0 and not message.topics):
        visible = [
            _describe(request, topic, message, services)
            for topic in topics.values()
            if is_visible(request, services, AclResource.TOPIC, topic.name)
        ]
        return _respond(request, message, services, visible)
    if (
        message.allow_auto_topic_creation
        and services.configs.broker.auto_create_topics_enable
        and any(one.topic_id == ZERO_UUID and one.name not in topics for one in message.topics)
    ):
        return _respond_creating(request, message, services)
    named = [_named(request, one, message, services) for one in _distinct(message.topics)]
    return _respond(request, message, services, named)


def _distinct(topics: list[Wanted]) -> Iterable[Wanted]:
    """A topic is told once, however often it is named: it may have thousands of partitions."""
    return {(one.topic_id, one.name): one for one in topics}.values() if len(topics) > 1 else topics


async def _respond_creating(
    request: Request, message: MetadataRequest, services: Services
) -> MetadataResponse:
    assert message.topics is not None
    missing = dict.fromkeys(
        one.name
        for one in message.topics
        if one.name is not None
        and one.topic_id == ZERO_UUID
        and one.name not in services.metadata.image.topics
        and is_visible(request, services, AclResource.TOPIC, one.name)
    )
    refused = dict.fromkeys(name for name in missing if not _may_create(request, name, services))
    room = max(1, REQUEST_PARTITIONS_MAX // services.configs.broker.num_partitions)
    made = [name for name in missing if name not in refused and not services.topics.is_missed(name)][:room]
    quota = MutationQuota(request, NEVER_REJECTED)
    outcomes = await gather_in_turns(_create(name, services, quota) for name in made)
    failed = {name: code for name, code in zip(made, outcomes, strict=True) if code is not None}
    failed.update(dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    named = [
        Topic(name=one.name, error_code=failed[one.name])
        if one.name in failed
        else _named(request, one, message, services)
        for one in _distinct(message.topics)
    ]
    return _respond(request, message, services, named)


def _may_create(request: Request, name: str, services: Services) -> bool:
    return is_cluster_allowed(request, services, AclOperation.CREATE, counted=False) or is_allowed(
        request, services, AclOperation.CREATE, AclResource.TOPIC, name
    )


async def _create(name: str, services: Services, quota: MutationQuota) -> ErrorCode | None:
    try:
        await services.topics.create(NewTopic(name))
        quota.record(services.configs.broker.num_partitions)
    except (FlintError, OSError) as error:
        code = error_code_of(error)
        return None if code is ErrorCode.TOPIC_ALREADY_EXISTS else code
    return None


def _named(request: Request, one: Wanted, message: MetadataRequest, services: Services) -> Topic:
    image = services.metadata.image
    if request.version < _FIRST_BY_ID and (one.topic_id != ZERO_UUID or one.name is None):
        # Versions 10 and 11 have the field, but no way to answer without a name.
        return Topic(name=one.name or "", error_code=ErrorCode.INVALID_REQUEST)
    if one.topic_id != ZERO_UUID:
        found = image.topics_by_id.get(one.topic_id)
        if found is None:
            return Topic(name=None, topic_id=one.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, found.name):
            return Topic(name=None, topic_id=one.topic_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _describe(request, found, message, services)
    if one.name is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A topic needs a name or an id.")
    if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.TOPIC, one.name):
        # The same whether the topic exists or not.
        return Topic(name=one.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = image.topics.get(one.name)
    if found is not None:
        return _describe(request, found, message, services)
    try:
        check_name(one.name)
    except RequestError as error:
        return Topic(name=one.name, error_code=error.code)
    return Topic(name=one.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _describe(request: Request, topic: TopicImage, message: MetadataRequest, services: Services) -> Topic:
    image = services.metadata.image
    described = Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            Partition(
                error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=image.offline_replicas(state),
            )
            for index, state in enumerate(topic.partitions)
            for leader in (image.available_leader(state),)
        ],
    )
    if message.include_topic_authorized_operations:
        described.topic_authorized_operations = authorized_operations(
            request, services, AclResource.TOPIC, topic.name
        )
    return described


def _respond(
    request: Request, message: MetadataRequest, services: Services, topics: list[Topic]
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=one.node_id, host=one.host, port=one.port, rack=one.rack
            )
            for one in services.endpoints.of(request.session)
        ],
        cluster_id=services.metadata.image.cluster_id,
        controller_id=services.metadata.image.controller_or(services.node_id),
        topics=topics,
    )
    if message.include_cluster_authorized_operations and 8 <= request.version <= 10:
        response.cluster_authorized_operations = cluster_authorized_operations(request, services)
    return response
