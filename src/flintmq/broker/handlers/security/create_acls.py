"""CreateAcls (30), versions 1–3: new ACLs, each accepted or rejected on its own (KIP-140, KIP-290).

The response is sent when the ACLs are durable and in force, on connections that are open already too. An ACL that
exists is accepted and changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.handlers.security.acl_messages import ACLS_MAX, acl_store, read_creation
from flintmq.broker.limits import ITEMS_PER_TURN
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import CreateAclsRequest, CreateAclsResponse
from flintmq.security.authorization.model import AclBinding, AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = CreateAclsResponse.AclCreationResult


async def handle(request: Request, message: CreateAclsRequest, services: Services) -> CreateAclsResponse:
    try:
        check_cluster_allowed(request, services, AclOperation.ALTER)
        store = acl_store(services)
        if len(message.creations) > ACLS_MAX:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"One request creates {ACLS_MAX} ACLs at most.")
        results, accepted = await _read(message)
        await store.create(accepted)
    except (FlintError, OSError) as error:
        return CreateAclsResponse(results=[_failure(error) for _ in message.creations])
    return CreateAclsResponse(results=results)


async def _read(message: CreateAclsRequest) -> tuple[list[Result], list[AclBinding]]:
    results: list[Result] = []
    accepted: list[AclBinding] = []
    for at, creation in enumerate(message.creations, 1):
        if at % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            accepted.append(read_creation(creation))
        except RequestError as error:
            results.append(_failure(error))
        else:
            results.append(Result(error_message=""))
    return results, accepted


def _failure(error: Exception) -> Result:
    return Result(error_code=error_code_of(error), error_message=reason_of(error))
