"""AlterUserScramCredentials (51), version 0: credentials are set and deleted (KIP-554).

The client sends the salted password; what is stored are the two keys that are made of it. Each user has a result of
its own. A connection that is authenticated with a deleted credential goes on until it authenticates again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.scram_credentials import ScramDeletion, ScramUpsertion
from flintmq.protocol.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def handle(
    request: Request, message: AlterUserScramCredentialsRequest, services: Services
) -> AlterUserScramCredentialsResponse | Awaitable[AlterUserScramCredentialsResponse]:
    try:
        check_cluster_allowed(request, services, AclOperation.ALTER)
    except RequestError as error:
        users = {one.name for one in message.deletions} | {one.name for one in message.upsertions}
        return _response((user, error) for user in sorted(users))
    # ORDER: salts and passwords are copied now; later the request's bytes are gone.
    deletions = [ScramDeletion(one.name, one.mechanism) for one in message.deletions]
    upsertions = [
        ScramUpsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in message.upsertions
    ]
    return _alter(deletions, upsertions, services)


async def _alter(
    deletions: list[ScramDeletion], upsertions: list[ScramUpsertion], services: Services
) -> AlterUserScramCredentialsResponse:
    results = await services.scram_credentials.alter(deletions, upsertions)
    return _response(results.items())


def _response(results: Iterable[tuple[str, RequestError | None]]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            Result(user=user, error_code=ErrorCode.NONE, error_message=None)
            if error is None
            else Result(user=user, error_code=error.code, error_message=reason_of(error))
            for user, error in results
        ]
    )
