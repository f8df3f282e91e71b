"""The SASL states of one connection, as Kafka's SaslServerAuthenticator has them. Pure.

    HANDSHAKE_OR_VERSIONS → HANDSHAKE → AUTHENTICATE → COMPLETE
                                             ↑             │  another handshake: re-authentication (KIP-368)
                                             └─────────────┘

ApiVersions is answered once and only before the handshake. A handshake of version 0 is followed by bare tokens, one
of version 1 by SaslAuthenticate requests. This module knows no bytes of requests and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from flintmq.security.authentication.mechanism import Evaluation, Mechanism, SaslFailure, SaslServer

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""A connection may re-authenticate once in this time, as Kafka has it."""


class ExchangeState(Enum):
    HANDSHAKE_OR_VERSIONS = "before the handshake"
    HANDSHAKE = "before the handshake, after ApiVersions"
    AUTHENTICATE = "authentication"
    OTHER_MECHANISM = "re-authentication with another mechanism"
    COMPLETE = "authenticated"
    FAILED = "failed"


class Admission(Enum):
    """What becomes of a request of a connection that is not authenticated."""

    HANDLE = "handle"
    CLOSE = "close without a response"
    ILLEGAL_STATE = "respond with ILLEGAL_SASL_STATE, then close"


class SaslExchange:
    __slots__ = (
        "_server",
        "has_headers",
        "is_reauthenticating",
        "mechanism",
        "reauthentication_began",
        "state",
    )

    def __init__(self) -> None:
        self.state = ExchangeState.HANDSHAKE_OR_VERSIONS
        self.mechanism = ""
        """The mechanism chosen by the last handshake that was accepted."""
        self.has_headers = False
        """Whether tokens come in SaslAuthenticate requests."""
        self.is_reauthenticating = False
        self.reauthentication_began: float | None = None
        self._server: SaslServer | None = None

    @property
    def expects_bare_token(self) -> bool:
        return not self.has_headers and self.state in (
            ExchangeState.AUTHENTICATE,
            ExchangeState.OTHER_MECHANISM,
        )

    @property
    def words(self) -> str:
        return "re-authentication" if self.is_reauthenticating else "authentication"

    def admit(self, api_key: int) -> Admission:
        """Judge a request with a header."""
        if self.state in (ExchangeState.AUTHENTICATE, ExchangeState.OTHER_MECHANISM):
            return Admission.HANDLE if api_key == SASL_AUTHENTICATE else Admission.ILLEGAL_STATE
        if api_key == SASL_HANDSHAKE and self.state is not ExchangeState.FAILED:
            return Admission.HANDLE
        is_first = self.state is ExchangeState.HANDSHAKE_OR_VERSIONS
        return Admission.HANDLE if api_key == API_VERSIONS and is_first else Admission.CLOSE

    def versions_sent(self) -> None:
        """ApiVersions was answered with the versions."""
        if self.state is ExchangeState.HANDSHAKE_OR_VERSIONS:
            self.state = ExchangeState.HANDSHAKE

    def begin_reauthentication(self, now: float) -> bool:
        """Return whether a handshake of an authenticated connection may begin the exchange again."""
        began = self.reauthentication_began
        if began is not None and now - began < REAUTHENTICATION_INTERVAL_S:
            return False
        self.reauthentication_began = now
        self.is_reauthenticating = True
        self.state = ExchangeState.HANDSHAKE
        return True

    def handshake(self, mechanism: str, version: int, enabled: Mapping[str, Mechanism]) -> bool:
        """Choose a mechanism; False if it is not enabled, and the connection is to be closed."""
        # Kafka never goes back to bare tokens either.
        self.has_headers = self.has_headers or version >= 1
        chosen = enabled.get(mechanism)
        if chosen is None:
            self.fail()
            return False
        if self.is_reauthenticating and mechanism != self.mechanism:
            self._server = _OtherMechanism(mechanism, self.mechanism)
            self.state = ExchangeState.OTHER_MECHANISM
            return True
        self.mechanism = mechanism
        self._server = chosen.begin()
        self.state = ExchangeState.AUTHENTICATE
        return True

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the client's next token; SaslFailure ends the exchange."""
        assert self._server is not None
        return self._server.evaluate(token)

    def complete(self) -> None:
        self._server = None
        self.is_reauthenticating = False
        self.state = ExchangeState.COMPLETE

    def fail(self) -> None:
        self._server = None
        self.state = ExchangeState.FAILED


class _OtherMechanism:
    """Kafka accepts the handshake and fails at the first token, so that the failure counts as one."""

    def __init__(self, mechanism: str, previous: str) -> None:
        self._words = (
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
            f"mechanism '{previous}'"
        )

    def evaluate(self, token: bytes) -> Evaluation:
        raise SaslFailure(self._words, self._words)
