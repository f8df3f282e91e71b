"""DescribeDelegationToken (41), versions 1–3: tokens with their HMACs (KIP-48, KIP-373).

Owners and renewers see their tokens; others need Describe on the token or DescribeTokens on its owner. Null selects
all owners, and an owner that is named selects the tokens that it may renew, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_visible
from flintmq.broker.handlers.security.token_requests import check_connection
from flintmq.broker.request import Request
from flintmq.errors import RequestError
from flintmq.protocol.messages import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.security.delegation_tokens import DelegationToken
from flintmq.security.principal import parse_principal

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Described = DescribeDelegationTokenResponse.DescribedDelegationToken
Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


def handle(
    request: Request, message: DescribeDelegationTokenRequest, services: Services
) -> DescribeDelegationTokenResponse:
    try:
        check_connection(request)
        services.tokens.check_enabled()
    except RequestError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners: set[str] | None = None
    if message.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in message.owners}
        if not owners:
            return DescribeDelegationTokenResponse()
    tokens = [
        _described(token, request.version)
        for token in services.tokens.all()
        if (owners is None or not owners.isdisjoint(_parties(token)))
        and _is_visible(request, services, token)
    ]
    return DescribeDelegationTokenResponse(tokens=tokens)


def _parties(token: DelegationToken) -> tuple[str, ...]:
    """Return who may renew the token. The requester is not among them."""
    return (token.value.owner, *token.value.renewers)


def _is_visible(request: Request, services: Services, token: DelegationToken) -> bool:
    if str(request.session.principal) in _parties(token):
        return True
    if is_visible(request, services, AclResource.DELEGATION_TOKEN, token.id):
        return True
    return is_visible(
        request, services, AclResource.USER, token.value.owner, operation=AclOperation.DESCRIBE_TOKENS
    )


def _described(token: DelegationToken, version: int) -> Described:
    value = token.value
    owner, requester = parse_principal(value.owner), parse_principal(value.requester)
    described = Described(
        principal_type=owner.kind,
        principal_name=owner.name,
        issue_timestamp=value.issued_ms,
        expiry_timestamp=value.expires_ms,
        max_timestamp=value.max_ms,
        token_id=token.id,
        hmac=token.hmac,
        renewers=[
            Renewer(principal_type=one.kind, principal_name=one.name)
            for one in map(parse_principal, value.renewers)
        ],
    )
    if version >= 3:
        described.token_requester_principal_type = requester.kind
        described.token_requester_principal_name = requester.name
    return described
