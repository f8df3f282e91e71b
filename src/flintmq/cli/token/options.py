"""Principals and tokens as they are typed and printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flintmq.cli.common.output import time_of
from flintmq.client.admin.tokens import TokenDescription, list_tokens
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ConfigurationError, ErrorCode, RequestError

COLUMNS = ("id", "owner", "requester", "renewers", "issued", "expires", "expires at the latest")


def read_principals(option: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Read `User:alice`; a name without a type is a user's."""
    principals = []
    for text in texts:
        kind, colon, name = text.partition(":")
        principal = (kind, name) if colon else ("User", text)
        if not all(principal):
            raise ConfigurationError(f"{option} {text}: expected a principal such as User:alice")
        principals.append(principal)
    return principals


def find_token(client: ClusterClient, token_id: str) -> TokenDescription:
    found = next((one for one in list_tokens(client) if one.id == token_id), None)
    if found is None:
        raise RequestError(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            f"there is no token {token_id} that you may see; `flintmq token list` lists all",
        )
    return found


def row_of(token: TokenDescription) -> tuple[str, ...]:
    times = (time_of(one) for one in (token.issued_ms, token.expires_ms, token.max_ms))
    return (token.id, token.owner, token.requester, " ".join(token.renewers), *times)


def json_of(token: TokenDescription, *, with_hmac: bool) -> dict[str, Any]:
    fields = token._asdict()
    if not with_hmac:
        del fields["hmac"]
    return fields
