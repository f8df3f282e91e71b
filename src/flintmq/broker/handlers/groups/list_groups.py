"""ListGroups (16), versions 0–5: all groups of this broker, by state from version 4 on and by type from 5 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_cluster_allowed, is_visible
from flintmq.broker.request import Request
from flintmq.coordinator.runtime.machine import Token
from flintmq.coordinator.runtime.shard import ShardState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ListGroupsRequest, ListGroupsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


# All shards are asked at once, and answer at once.
_ASKING: Token = -1


def handle(request: Request, message: ListGroupsRequest, services: Services) -> ListGroupsResponse:
    response = ListGroupsResponse()
    for shard in services.groups:
        if shard.state is ShardState.LOADING:
            response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif shard.state is ShardState.ACTIVE:
            for _, part in shard.machine.list_groups(_ASKING, message, request.version).responses:
                assert isinstance(part, ListGroupsResponse)
                response.groups += part.groups
    if not is_cluster_allowed(request, services, AclOperation.DESCRIBE, counted=False):
        response.groups = [
            group
            for group in response.groups
            if is_visible(request, services, AclResource.GROUP, group.group_id)
        ]
    return response
