"""AlterConfigs (33), versions 0–2: all dynamic settings of topics or brokers, replaced.

What a resource has and the request does not name falls back to its default, which is why clients prefer
IncrementalAlterConfigs. A resource that comes twice is refused, as are loggers, which only the other API alters.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flintmq.broker.handlers.configs.authorization import check_config_access
from flintmq.broker.limits import ITEMS_PER_TURN
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.config_changes import ConfigChanges, ResourceType
from flintmq.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from flintmq.security.authorization.model import AclOperation
from flintmq.settings import Alteration, replacement

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = AlterConfigsRequest.AlterConfigsResource
Result = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(request: Request, message: AlterConfigsRequest, services: Services) -> AlterConfigsResponse:
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
    return AlterConfigsResponse(responses=results)


async def _alter(wanted: Wanted, services: Services, *, validate_only: bool) -> None:
    values = [(config.name, config.value) for config in wanted.configs]

    def decide(current: Mapping[str, str]) -> Sequence[Alteration]:
        return replacement(current, values)

    changes = ConfigChanges(services.metadata, services.configs, services.node_id)
    if wanted.resource_type == ResourceType.TOPIC:
        await changes.alter_topic(wanted.resource_name, decide, validate_only=validate_only)
    elif wanted.resource_type == ResourceType.BROKER:
        await changes.alter_broker(wanted.resource_name, decide, validate_only=validate_only)
    else:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Resources of type {wanted.resource_type} cannot be altered here."
        )
