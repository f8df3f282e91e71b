"""ExpireDelegationToken (40), versions 1–2: a token's owner and renewers move its end or remove it (KIP-48).

A negative period removes the token at once, with 0 it has expired, and sessions that were authenticated with it end
with their next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.handlers.security.token_requests import NO_TIME, check_connection
from flintmq.broker.request import Request
from flintmq.errors import RequestError
from flintmq.protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(
    request: Request, message: ExpireDelegationTokenRequest, services: Services
) -> ExpireDelegationTokenResponse:
    # ORDER: the HMAC is copied first; later the request's bytes are gone.
    made, period_ms = bytes(message.hmac), message.expiry_time_period_ms
    try:
        check_connection(request)
    except RequestError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    try:
        expires_ms = await services.tokens.expire(made, request.session.principal, period_ms)
    except RequestError as error:
        return ExpireDelegationTokenResponse(error_code=error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
