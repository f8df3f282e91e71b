"""Delegation tokens over the wire: created, renewed, expired, listed (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner


class TokenDescription(NamedTuple):
    id: str
    hmac: str
    """In base64: the password of the token."""
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int


def create_token(
    client: ClusterClient,
    *,
    owner: tuple[str, str] | None = None,
    renewers: Sequence[tuple[str, str]] = (),
    max_lifetime_ms: int = -1,
) -> TokenDescription:
    """Create a token for the client itself or another owner; principals are given as type and name."""
    request = CreateDelegationTokenRequest(
        renewers=[Renewer(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=max_lifetime_ms,
        owner_principal_type=None,
        owner_principal_name=None,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = owner
    made = client.call_controller(
        request, CreateDelegationTokenResponse, lambda one: check(one.error_code, what="delegation token")
    )
    return TokenDescription(
        made.token_id,
        base64.b64encode(bytes(made.hmac)).decode(),
        f"{made.principal_type}:{made.principal_name}",
        f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
        [f"{kind}:{name}" for kind, name in renewers],
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )


def renew_token(client: ClusterClient, hmac: str, period_ms: int = -1) -> int:
    """Return when the token expires now."""
    request = RenewDelegationTokenRequest(hmac=base64.b64decode(hmac), renew_period_ms=period_ms)
    response = client.call_controller(
        request, RenewDelegationTokenResponse, lambda one: check(one.error_code, what="delegation token")
    )
    return response.expiry_timestamp_ms


def expire_token(client: ClusterClient, hmac: str, period_ms: int = -1) -> int:
    """Return when the token expires; without a period it is removed now."""
    request = ExpireDelegationTokenRequest(hmac=base64.b64decode(hmac), expiry_time_period_ms=period_ms)
    response = client.call_controller(
        request, ExpireDelegationTokenResponse, lambda one: check(one.error_code, what="delegation token")
    )
    return response.expiry_timestamp_ms


def list_tokens(
    client: ClusterClient, owners: Sequence[tuple[str, str]] | None = None
) -> list[TokenDescription]:
    """Return the tokens that the client may see: of these owners, or of all for None."""
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [Owner(principal_type=kind, principal_name=name) for kind, name in owners]
    )
    response = client.call(
        request, DescribeDelegationTokenResponse, lambda one: check(one.error_code, what="delegation tokens")
    )
    return [
        TokenDescription(
            one.token_id,
            base64.b64encode(bytes(one.hmac)).decode(),
            f"{one.principal_type}:{one.principal_name}",
            f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
            [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in one.renewers],
            one.issue_timestamp,
            one.expiry_timestamp,
            one.max_timestamp,
        )
        for one in response.tokens
    ]
