"""IncrementalAlterConfigs (44), versions 0–1: settings set, deleted, appended to or subtracted from (KIP-339).

Each resource is changed as a whole or not at all: topics, this broker, all brokers (the empty name), and this
broker's loggers (KIP-412), whose levels last until it stops. A resource that comes twice is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from flintmq.broker import loggers
from flintmq.broker.handlers.configs.authorization import check_config_access
from flintmq.broker.limits import ITEMS_PER_TURN
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.config_changes import ConfigChanges, ResourceType, check_node
from flintmq.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from flintmq.security.authorization.model import AclOperation
from flintmq.settings import Alteration

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = IncrementalAlterConfigsRequest.AlterConfigsResource
Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    request: Request, message: IncrementalAlterConfigsRequest, services: Services
) -> IncrementalAlterConfigsResponse:
    counts = Counter((wanted.resource_type, wanted.resource_name) for wanted in message.resources)
    results = []
    for at, wanted in enumerate(message.resources, 1):
        if at % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
        result = Result(
            resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
        )
        try:
            if counts[wanted.resource_type, wanted.resource_name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_config_access(
                request, AclOperation.ALTER_CONFIGS, wanted.resource_type, wanted.resource_name, services
            )
            await _alter(wanted, services, validate_only=message.validate_only)
        except (FlintError, OSError) as error:
            result.error_code = error_code_of(error)
            result.error_message = reason_of(error)
        results.append(result)
    return IncrementalAlterConfigsResponse(responses=results)


async def _alter(wanted: Wanted, services: Services, *, validate_only: bool) -> None:
    alterations = [
        Alteration(config.name, config.config_operation, config.value) for config in wanted.configs
    ]
    changes = ConfigChanges(services.metadata, services.configs, services.node_id)
    if wanted.resource_type == ResourceType.TOPIC:
        await changes.alter_topic(wanted.resource_name, lambda _: alterations, validate_only=validate_only)
    elif wanted.resource_type == ResourceType.BROKER:
        await changes.alter_broker(wanted.resource_name, lambda _: alterations, validate_only=validate_only)
    elif wanted.resource_type == ResourceType.BROKER_LOGGER:
        check_node(wanted.resource_name, services.node_id)
        loggers.check(alterations)
        if not validate_only:
            loggers.alter(alterations)
    else:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {wanted.resource_type} are not available in this version.",
        )
