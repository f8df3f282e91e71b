"""DeleteGroups (42), versions 0–2: groups without members go, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(request: Request, message: DeleteGroupsRequest, services: Services) -> None:
    version, group_ids = request.version, list(dict.fromkeys(message.groups_names))
    call_for_each(
        request,
        services,
        services.groups,
        len(group_ids),
        lambda at: CoordinatorCall(
            group_ids[at], lambda groups, token: groups.delete_groups(token, [group_ids[at]], version)
        ),
        lambda at, code: DeleteGroupsResponse(results=[_failed(group_ids[at], code)]),
        lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part.results]),
    )


def _failed(group_id: str, code: ErrorCode) -> Result:
    return Result(group_id=group_id, error_code=code)
