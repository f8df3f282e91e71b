"""SaslHandshake (17), versions 0 and 1: the client chooses a mechanism (KIP-43).

After version 0 tokens come bare, after version 1 in SaslAuthenticate requests (KIP-152). On a connection that is
authenticated it begins a re-authentication (KIP-368), if its authentication ends at some time; else it is answered
with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authentication import reject_mechanism
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services


def handle(
    request: Request, message: SaslHandshakeRequest, services: Services
) -> SaslHandshakeResponse | None:
    session = request.session
    exchange = session.sasl
    if exchange is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if session.is_authenticated:
        if session.expires_at is None or not exchange.begin_reauthentication(services.clock.monotonic()):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        session.is_authenticated = False
    enabled = services.sasl.mechanisms(session.listener)
    response = SaslHandshakeResponse(mechanisms=list(enabled))
    if not exchange.handshake(message.mechanism, request.version, enabled):
        response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        reject_mechanism(request, message.mechanism, response, services)
        return None
    return response
