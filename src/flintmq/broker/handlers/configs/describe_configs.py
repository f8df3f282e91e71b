"""DescribeConfigs (32), versions 1–4: settings, their values, and where the values come from (KIP-133, KIP-226).

Resources are topics, this broker by its number, all brokers by the empty name (only what is set dynamically
for all of them), and this broker's loggers (KIP-412). No names, or null, means all settings. Synonyms are told
if asked for, types and explanations from version 3 on. The value of a secret is never told. Large requests are
handled one at a time, and one answer has a bounded number of settings.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.broker import loggers
from flintmq.broker.handlers.configs.authorization import check_config_access
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.config_changes import ResourceType, check_node
from flintmq.metadata.topics import check_name
from flintmq.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from flintmq.security.authorization.model import AclOperation
from flintmq.settings import ConfigEntry, describe_broker, describe_broker_default, describe_topic

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Config = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

_FIRST_WITH_TYPES = 3
_DYNAMIC_BROKER_LOGGER_CONFIG = 6
# A client may ask for every topic at once: others get their turn after so many.
_RESOURCES_PER_TURN = 4
# A resource may be named again and again, and each time has dozens of settings.
CONFIGS_MAX = 100_000


async def handle(
    request: Request, message: DescribeConfigsRequest, services: Services
) -> DescribeConfigsResponse:
    if len(message.resources) <= _RESOURCES_PER_TURN:
        return await _respond(request, message, services)
    async with services.describing:
        return await _respond(request, message, services)


async def _respond(
    request: Request, message: DescribeConfigsRequest, services: Services
) -> DescribeConfigsResponse:
    results = []
    room = CONFIGS_MAX
    for count, wanted in enumerate(message.resources, 1):
        result = Result(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        try:
            if room <= 0:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    f"One answer tells of {CONFIGS_MAX} settings; ask for fewer resources at once.",
                )
            check_config_access(
                request, AclOperation.DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name, services
            )
            result.configs = _configs(request, message, wanted, services)
            room -= len(result.configs)
        except FlintError as error:
            result.error_code = error_code_of(error)
            result.error_message = reason_of(error)
        results.append(result)
        if count % _RESOURCES_PER_TURN == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


def _configs(
    request: Request, message: DescribeConfigsRequest, wanted: Wanted, services: Services
) -> list[Config]:
    if wanted.resource_type == ResourceType.BROKER_LOGGER:
        return _loggers(wanted, services)
    return [
        _config(entry, message, typed=request.version >= _FIRST_WITH_TYPES)
        for entry in _entries(wanted, services)
    ]


def _entries(wanted: Wanted, services: Services) -> list[ConfigEntry]:
    name, values = wanted.resource_name, services.configs.values
    selected = set(wanted.configuration_keys) if wanted.configuration_keys else None
    if wanted.resource_type == ResourceType.TOPIC:
        check_name(name)
        services.topics.find(name)
        overrides = services.metadata.image.topic_configs.get(name, {})
        return describe_topic(overrides, values, selected, config=services.configs.broker)
    if wanted.resource_type == ResourceType.BROKER:
        if not name:
            return describe_broker_default(values, selected)
        check_node(name, services.node_id)
        return describe_broker(values, selected, config=services.configs.broker)
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"Resources of type {wanted.resource_type} are not available in this version.",
    )


def _loggers(wanted: Wanted, services: Services) -> list[Config]:
    check_node(wanted.resource_name, services.node_id)
    selected = set(wanted.configuration_keys or ())
    return [
        Config(name=name, value=level, config_source=_DYNAMIC_BROKER_LOGGER_CONFIG)
        for name, level in loggers.levels().items()
        if not selected or name in selected
    ]


def _config(entry: ConfigEntry, message: DescribeConfigsRequest, *, typed: bool) -> Config:
    config = Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
    )
    if message.include_synonyms:
        config.synonyms = [
            Synonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    if typed:
        config.config_type = entry.kind
        config.documentation = entry.doc if message.include_documentation else None
    return config
