"""JoinGroup (11), versions 0–9: become a member of a group, and wait for the others of the generation (F4).

Answered when the rebalance is over. Member ids from version 4 on (KIP-394), static members from 5 on (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import call_coordinator
from flintmq.broker.request import Request
from flintmq.coordinator.groups.membership import GroupClient
from flintmq.coordinator.groups.responses import join_refused
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import JoinGroupRequest, JoinGroupResponse
from flintmq.records.uuids import to_canonical
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(request: Request, message: JoinGroupRequest, services: Services) -> JoinGroupResponse | None:
    version = request.version
    if not is_allowed(request, services, AclOperation.READ, AclResource.GROUP, message.group_id):
        return join_refused(version, message.member_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    client = GroupClient(request.client_id or "", f"/{request.session.peer_host}")
    new_member_id = to_canonical(services.random.bytes(16))
    call_coordinator(
        request,
        services.groups,
        message.group_id,
        lambda groups, token: groups.join_group(
            token, message, version, client, new_member_id, services.clock.now_ms()
        ),
        lambda code: join_refused(version, message.member_id, code),
    )
    return None
