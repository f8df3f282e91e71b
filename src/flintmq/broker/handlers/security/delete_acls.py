"""DeleteAcls (31), versions 1–3: the ACLs that filters select are deleted, and returned (KIP-140, KIP-290).

The response is sent when the deletion is durable and in force. Filters are taken as DescribeAcls takes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.handlers.security.acl_messages import ACLS_MAX, acl_store, read_filter
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import DeleteAclsRequest, DeleteAclsResponse
from flintmq.security.authorization.acl_store import AclStore
from flintmq.security.authorization.model import AclBinding, AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = DeleteAclsResponse.DeleteAclsFilterResult
Matching = DeleteAclsResponse.DeleteAclsMatchingAcl


async def handle(request: Request, message: DeleteAclsRequest, services: Services) -> DeleteAclsResponse:
    try:
        check_cluster_allowed(request, services, AclOperation.ALTER)
        store = acl_store(services)
        results, selected = await _select(message, store)
        await store.delete(list(selected))
    except (FlintError, OSError) as error:
        return DeleteAclsResponse(filter_results=[_failure(error) for _ in message.filters])
    return DeleteAclsResponse(filter_results=results)


async def _select(message: DeleteAclsRequest, store: AclStore) -> tuple[list[Result], dict[AclBinding, None]]:
    """Return the part of the response for each filter, and the ACLs that they select together."""
    results: list[Result] = []
    selected: dict[AclBinding, None] = {}
    matches = 0
    for one in message.filters:
        try:
            found = store.acls(read_filter(one))
        except RequestError as error:
            results.append(_failure(error))
            continue
        matches += len(found)
        if matches > ACLS_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"One request deletes {ACLS_MAX} ACLs at most; send narrower filters one by one.",
            )
        selected.update(dict.fromkeys(found))
        results.append(Result(error_message=None, matching_acls=[_matching(acl) for acl in found]))
        # A filter may look through all ACLs: other requests are handled in between.
        await asyncio.sleep(0)
    return results, selected


def _matching(acl: AclBinding) -> Matching:
    return Matching(
        error_message=None,
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _failure(error: Exception) -> Result:
    return Result(error_code=error_code_of(error), error_message=reason_of(error))
