"""DescribeGroups (15), versions 0–6: the state of groups, their members and what these were assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorized_operations import NOT_ASKED, ON_GROUP, bits
from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: DescribeGroupsRequest, services: Services) -> None:
    version, group_ids = request.version, message.groups

    def failed(at: int, code: ErrorCode) -> DescribeGroupsResponse:
        group = DescribeGroupsResponse.DescribedGroup(group_id=group_ids[at], error_code=code)
        return DescribeGroupsResponse(groups=[group])

    def whole(parts: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
        groups = [part.groups[0] for part in parts]
        operations = bits(ON_GROUP) if message.include_authorized_operations else NOT_ASKED
        for group in groups:
            group.authorized_operations = operations
        return DescribeGroupsResponse(groups=groups)

    call_for_each(
        request,
        services,
        services.groups,
        len(group_ids),
        lambda at: CoordinatorCall(
            group_ids[at], lambda groups, token: groups.describe_groups(token, [group_ids[at]], version)
        ),
        failed,
        whole,
    )
