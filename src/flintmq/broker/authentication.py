"""Requests of connections that are not authenticated: which are handled, and what a SASL token leads to.

Until a connection is authenticated only ApiVersions, SaslHandshake and SaslAuthenticate are handled, in the order
of Kafka's states (`security/authentication/exchange.py`). A token is a barrier: no later request is dispatched before
it is judged. A failure is answered after `connection.failed.authentication.delay.ms`, and the connection is closed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flintmq.broker.request import Request, ResponseBuffers
from flintmq.broker.responses import encode_response
from flintmq.errors import ErrorCode, ProtocolError
from flintmq.protocol import messages
from flintmq.protocol.header import API_VERSIONS_KEY
from flintmq.security.authentication.exchange import SASL_HANDSHAKE, Admission, SaslExchange
from flintmq.security.authentication.hashing import TOO_MANY
from flintmq.security.authentication.mechanism import SaslFailure, SaslStep, SaslUnavailable

if TYPE_CHECKING:
    from flintmq.broker.services import Services

logger: Final = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">i")

Accepted = Callable[[Request, bytes, int], ResponseBuffers]
"""Encodes a step: the request, the token for the client, and how long the session lasts in ms (0: no limit)."""
Refused = Callable[[Request, str], ResponseBuffers]
"""Encodes a failure: the request and the message for the client."""


def admit(request: Request, services: Services) -> bool:
    """Return whether a request is handled. If not, it is rejected here; ProtocolError closes the connection."""
    session = request.session
    key = request.api.key
    if session.is_authenticated:
        expires_at = session.expires_at
        if expires_at is not None and request.began > expires_at and key != SASL_HANDSHAKE:
            raise ProtocolError("its authentication has expired and it did not authenticate again")
        if session.token_authenticated and not services.tokens.is_valid(session.token_id):
            raise ProtocolError("its delegation token has expired or was removed")
        return True
    exchange = session.sasl
    if exchange is None:
        raise ProtocolError(f"{request.api.name} before authentication")
    admission = exchange.admit(key)
    if admission is Admission.HANDLE:
        if key != API_VERSIONS_KEY and not _is_served(request):
            raise ProtocolError(f"{request.api.name} is not served in version {request.version}")
        return True
    if admission is Admission.CLOSE:
        raise ProtocolError(
            f"unexpected {request.api.name} {exchange.state.value}; a SASL handshake was expected"
        )
    _reject_illegal_state(request, exchange, services)
    return False


def take_token(
    request: Request, token: bytes, services: Services, *, accepted: Accepted, refused: Refused
) -> None:
    """Evaluate a token of the client and respond, now or when a thread has done the work."""
    exchange = request.session.sasl
    assert exchange is not None
    request.barrier = True
    try:
        evaluation = exchange.evaluate(token)
        if isinstance(evaluation, SaslStep):
            _accept(request, evaluation, services, accepted)
            return
    except SaslFailure as failure:
        _fail(request, failure, services, refused)
        return
    except SaslUnavailable as error:
        raise ProtocolError(str(error)) from None

    def done(step: SaslStep | None, error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error
            assert step is not None
            _accept(request, step, services, accepted)
        except SaslFailure as failure:
            _fail(request, failure, services, refused)
        except SaslUnavailable as unavailable:
            request.connection.refuse(str(unavailable))
        except Exception:
            logger.exception("an authentication of %s could not be judged", request.session.peer)
            request.connection.refuse("its authentication could not be judged")

    if not services.sasl.hashing.submit(evaluation, done, request.session.peer_host):
        # Not a failed authentication, which many clients would take as final: they connect again.
        raise ProtocolError(TOO_MANY)


def take_bare_token(request: Request, token: bytes, services: Services) -> None:
    """Evaluate a token without a header. Kafka answers a failure by closing the connection."""
    take_token(
        request,
        token,
        services,
        accepted=lambda _, challenge, __: [_SIZE.pack(len(challenge)) + challenge],
        refused=lambda _, __: [],
    )


def reject_mechanism(
    request: Request, mechanism: str, response: messages.SaslHandshakeResponse, services: Services
) -> None:
    """Answer a handshake with a mechanism that is not enabled."""
    session, sasl = request.session, services.sasl
    sasl.counters.failed[sasl.label(session.listener, mechanism)] += 1
    reason = f"it asked for the SASL mechanism {mechanism[:40]!r}, which is not enabled"
    if services.audit is not None:
        services.audit.authentication(
            session, api=request.api.name, mechanism=mechanism[:40], failure="the mechanism is not enabled"
        )
    request.connection.reject(request, encode_response(request, response), reason, sasl.failure_delay_s)


def _accept(request: Request, step: SaslStep, services: Services, accepted: Accepted) -> None:
    identity = step.identity
    if identity is None:
        request.respond(accepted(request, step.token, 0))
        return
    session, sasl = request.session, services.sasl
    exchange = session.sasl
    assert exchange is not None
    old, new = session.principal, identity.principal
    if exchange.is_reauthenticating and old != new:
        words = (
            "Cannot change principals during re-authentication from "
            f"{old.kind}.{old.name}: {new.kind}.{new.name}"
        )
        raise SaslFailure(words, words)
    lifetime_ms = sasl.lifetime_ms(session.listener, exchange.mechanism, identity)
    session.principal = new
    session.token_id = identity.token_id
    session.expires_at = None if lifetime_ms is None else services.clock.monotonic() + lifetime_ms / 1000
    session.is_authenticated = True
    exchange.complete()
    sasl.counters.succeeded[exchange.mechanism] += 1
    if services.audit is not None:
        services.audit.authentication(session, api=request.api.name, mechanism=exchange.mechanism)
    # ORDER: the limits are lifted first, for `respond` may dispatch what was held back.
    request.connection.authenticated()
    request.respond(accepted(request, step.token, lifetime_ms or 0))


def _fail(request: Request, failure: SaslFailure, services: Services, refused: Refused) -> None:
    session, sasl = request.session, services.sasl
    exchange = session.sasl
    assert exchange is not None
    message = failure.client_message or (
        f"Authentication failed during {exchange.words} due to invalid credentials with SASL mechanism "
        f"{exchange.mechanism}"
    )
    exchange.fail()
    sasl.counters.failed[sasl.label(session.listener, exchange.mechanism)] += 1
    request.failed(ErrorCode.SASL_AUTHENTICATION_FAILED)
    if services.audit is not None:
        services.audit.authentication(
            session, api=request.api.name, mechanism=exchange.mechanism, failure=str(failure)[:200]
        )
    reason = f"its {exchange.words} by {exchange.mechanism} failed: {str(failure)[:200]}"
    request.connection.reject(request, refused(request, message), reason, sasl.failure_delay_s)


def _reject_illegal_state(request: Request, exchange: SaslExchange, services: Services) -> None:
    """Answer a request that came in place of a token, if its response can hold an error code."""
    sasl = services.sasl
    exchange.fail()
    sasl.counters.failed[sasl.label(request.session.listener, exchange.mechanism)] += 1
    request.failed(ErrorCode.ILLEGAL_SASL_STATE)
    words = f"Unexpected Kafka request of type {request.api.name} during SASL authentication."
    if services.audit is not None:
        services.audit.authentication(
            request.session, api=request.api.name, mechanism=exchange.mechanism, failure=words
        )
    buffers: ResponseBuffers = []
    response = messages.response_of(request.api.key)()
    if _is_served(request) and hasattr(response, "error_code"):
        response.error_code = ErrorCode.ILLEGAL_SASL_STATE
        if hasattr(response, "error_message"):
            response.error_message = words
        buffers = encode_response(request, response)
    request.connection.reject(request, buffers, words, sasl.failure_delay_s)


def _is_served(request: Request) -> bool:
    lowest, highest = request.api.versions
    return lowest <= request.version <= highest
