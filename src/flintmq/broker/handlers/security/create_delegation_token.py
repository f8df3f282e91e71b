"""CreateDelegationToken (38), versions 1–3: a token for the client itself, or for another owner (KIP-48, KIP-373).

Another owner needs CreateTokens on that user. Only principals of the type User own and renew tokens; Kafka accepts
owners of other types, whose tokens then authenticate the user of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.handlers.security.token_requests import NO_TIME, check_connection
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.security.principal import USER, Principal

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(
    request: Request, message: CreateDelegationTokenRequest, services: Services
) -> CreateDelegationTokenResponse:
    requester = request.session.principal
    owner = requester
    if message.owner_principal_name:
        owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
    renewers = [Principal(one.principal_type, one.principal_name) for one in message.renewers]
    response = CreateDelegationTokenResponse(principal_type=owner.kind, principal_name=owner.name)
    if request.version >= 3:
        response.token_requester_principal_type = requester.kind
        response.token_requester_principal_name = requester.name
    try:
        check_connection(request)
        if owner != requester:
            check_allowed(request, services, AclOperation.CREATE_TOKENS, AclResource.USER, str(owner))
        if any(one.kind != USER for one in (owner, *renewers)):
            raise RequestError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except RequestError as error:
        # These errors have other times than those below, as Kafka has them.
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
        response.error_code = error.code
        return response
    try:
        token = await services.tokens.create(owner, requester, renewers, message.max_lifetime_ms)
    except RequestError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.value.issued_ms
    response.expiry_timestamp_ms = token.value.expires_ms
    response.max_timestamp_ms = token.value.max_ms
    response.token_id = token.id
    response.hmac = token.hmac
    return response
