"""DescribeUserScramCredentials (50), version 0: mechanisms and iterations of users, never their keys (KIP-554).

Null or no users means all of them. A user that is named twice, or does not exist, gets an error of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import RequestError
from flintmq.metadata.scram_credentials import ScramDescription
from flintmq.protocol.messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(
    request: Request, message: DescribeUserScramCredentialsRequest, services: Services
) -> DescribeUserScramCredentialsResponse:
    try:
        check_cluster_allowed(request, services, AclOperation.DESCRIBE)
    except RequestError as denial:
        return _denied(message, denial)
    users = None if message.users is None else [user.name for user in message.users]
    results = []
    for found in services.scram_credentials.describe(users):
        if isinstance(found, ScramDescription):
            infos = [Info(mechanism=one.type, iterations=iterations) for one, iterations in found.iterations]
            results.append(Result(user=found.user, credential_infos=infos))
        else:
            user, error = found
            results.append(Result(user=user, error_code=error.code, error_message=reason_of(error)))
    return DescribeUserScramCredentialsResponse(results=results)


def _denied(
    message: DescribeUserScramCredentialsRequest, error: RequestError
) -> DescribeUserScramCredentialsResponse:
    """Kafka answers each user that was asked for too, without its name."""
    reason = reason_of(error)
    results = [Result(error_code=error.code, error_message=reason) for _ in message.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=reason, results=results)
