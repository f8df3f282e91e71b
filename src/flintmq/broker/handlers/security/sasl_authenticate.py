"""SaslAuthenticate (36), versions 0–2: one token of the client, and the broker's token in the response (KIP-152).

From version 1 on the last response says how long the authentication holds (KIP-368). A failed authentication is
answered with SASL_AUTHENTICATION_FAILED and a text that does not say whether the user exists; then the connection is
closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authentication import take_token
from flintmq.broker.request import Request, ResponseBuffers
from flintmq.broker.responses import encode_response
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_WITH_LIFETIME = 1


def handle(
    request: Request, message: SaslAuthenticateRequest, services: Services
) -> SaslAuthenticateResponse | None:
    if request.session.is_authenticated:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    take_token(request, bytes(message.auth_bytes), services, accepted=_accepted, refused=_refused)
    return None


def _accepted(request: Request, token: bytes, lifetime_ms: int) -> ResponseBuffers:
    response = SaslAuthenticateResponse(auth_bytes=token)
    if request.version >= _FIRST_WITH_LIFETIME:
        response.session_lifetime_ms = lifetime_ms
    return encode_response(request, response)


def _refused(request: Request, message: str) -> ResponseBuffers:
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
    )
    return encode_response(request, response)
