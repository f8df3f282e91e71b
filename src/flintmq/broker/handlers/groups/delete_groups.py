"""DeleteGroups (42), versions 0–2: groups without members go, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = DeleteGroupsResponse.DeletableGroupResult


def handle(request: Request, message: DeleteGroupsRequest, services: Services) -> None:
    version, group_ids = request.version, list(dict.fromkeys(message.groups_names))

    def delete(at: int) -> CoordinatorCall[GroupMachine] | DeleteGroupsResponse:
        group_id = group_ids[at]
        if not is_allowed(request, services, AclOperation.DELETE, AclResource.GROUP, group_id):
            return DeleteGroupsResponse(results=[_failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)])
        return CoordinatorCall(
            group_id, lambda groups, token: groups.delete_groups(token, [group_id], version)
        )

    call_for_each(
        request,
        services,
        services.groups,
        len(group_ids),
        delete,
        lambda at, code: DeleteGroupsResponse(results=[_failed(group_ids[at], code)]),
        lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part.results]),
    )


def _failed(group_id: str, code: ErrorCode) -> Result:
    return Result(group_id=group_id, error_code=code)
