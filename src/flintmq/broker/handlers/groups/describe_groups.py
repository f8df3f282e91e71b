"""DescribeGroups (15), versions 0–6: the state of groups, their members and what these were assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import NOT_ASKED, authorized_operations, is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: DescribeGroupsRequest, services: Services) -> None:
    version, group_ids = request.version, message.groups

    def describe(at: int) -> CoordinatorCall[GroupMachine] | DescribeGroupsResponse:
        group_id = group_ids[at]
        if not is_allowed(request, services, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            return failed(at, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return CoordinatorCall(
            group_id, lambda groups, token: groups.describe_groups(token, [group_id], version)
        )

    def failed(at: int, code: ErrorCode) -> DescribeGroupsResponse:
        group = DescribeGroupsResponse.DescribedGroup(group_id=group_ids[at], error_code=code)
        return DescribeGroupsResponse(groups=[group])

    def whole(parts: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
        groups = [part.groups[0] for part in parts]
        for group in groups:
            group.authorized_operations = (
                authorized_operations(request, services, AclResource.GROUP, group.group_id)
                if message.include_authorized_operations and not group.error_code
                else NOT_ASKED
            )
        return DescribeGroupsResponse(groups=groups)

    call_for_each(
        request,
        services,
        services.groups,
        len(group_ids),
        describe,
        failed,
        whole,
    )
