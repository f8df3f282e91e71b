"""RenewDelegationToken (39), versions 1–2: the owner and the renewers of a token move its end (KIP-48).

A token never outlives its maximum lifetime, however often it is renewed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.handlers.security.token_requests import NO_TIME, check_connection
from flintmq.broker.request import Request
from flintmq.errors import RequestError
from flintmq.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def handle(
    request: Request, message: RenewDelegationTokenRequest, services: Services
) -> RenewDelegationTokenResponse:
    # ORDER: the HMAC is copied first; later the request's bytes are gone.
    made, period_ms = bytes(message.hmac), message.renew_period_ms
    try:
        check_connection(request)
    except RequestError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    try:
        expires_ms = await services.tokens.renew(made, request.session.principal, period_ms)
    except RequestError as error:
        return RenewDelegationTokenResponse(error_code=error.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
