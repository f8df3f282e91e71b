"""SCRAM credentials, over the wire (KIP-554). A password never is: the broker gets it salted and hashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.errors import ProtocolError
from flintmq.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from flintmq.protocol.scram import BY_TYPE, ScramMechanism, salted_password

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

SALT_BYTES = 24


class ScramUser(NamedTuple):
    name: str
    iterations: dict[str, int]
    """By mechanism."""


def list_users(client: ClusterClient) -> list[ScramUser]:
    """Return all users that have a credential, by name."""
    response = client.call(
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsResponse,
        lambda one: check(one.error_code, one.error_message),
    )
    users = [
        ScramUser(
            one.user, {_mechanism_name(info.mechanism): info.iterations for info in one.credential_infos}
        )
        for one in response.results
    ]
    return sorted(users)


def set_password(
    client: ClusterClient, user: str, password: str, mechanism: ScramMechanism, iterations: int, salt: bytes
) -> None:
    """Set a user's password for one mechanism. `salt` are SALT_BYTES random bytes."""
    upsertion = Upsertion(
        name=user,
        mechanism=mechanism.type,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
    _alter(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def delete_credentials(client: ClusterClient, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """Delete a user's credentials; RequestError if it has none for one of these mechanisms."""
    for mechanism in mechanisms:
        deletion = Deletion(name=user, mechanism=mechanism.type)
        _alter(client, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(client: ClusterClient, request: AlterUserScramCredentialsRequest) -> None:
    client.call_controller(request, AlterUserScramCredentialsResponse, _judge)


def _judge(response: AlterUserScramCredentialsResponse) -> None:
    if not response.results:
        raise ProtocolError("the broker did not say what became of the credential")
    for result in response.results:
        check(result.error_code, result.error_message, what=f"user {result.user}")


def _mechanism_name(number: int) -> str:
    known = BY_TYPE.get(number)
    return known.value if known else str(number)
