"""What a SASL mechanism is: a state machine that is given the client's tokens, one after the other.

`evaluate` returns a step, or a function that takes too long for the event loop and returns one; that function runs in
a thread. Nothing else of the same connection happens meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flintmq.security.principal import Principal


class SaslFailure(Exception):
    """The client is not who it claims to be, or sends what the mechanism does not allow.

    `client_message` is sent to the client and never says whether the user exists; None stands for the same text for
    all such failures. The exception's own text is for the log.
    """

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


class SaslUnavailable(Exception):
    """The credential cannot be judged now. The connection is closed without a response, and the client may retry."""


class Identity(NamedTuple):
    principal: Principal
    expires_ms: int | None = None
    """Wall time at which the credential expires (a token's end); None if it does not."""
    token_id: str = ""
    """The id of the delegation token that authenticated it; empty if none did."""


class SaslStep(NamedTuple):
    token: bytes
    """For the client."""
    identity: Identity | None = None
    """Who the client is, once that is proved; None while the mechanism expects another token."""


Evaluation = SaslStep | Callable[[], SaslStep]


class SaslServer(Protocol):
    """One authentication of one connection."""

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the client's next token; SaslFailure ends the authentication."""
        ...


class Mechanism(Protocol):
    """A mechanism on one listener."""

    def begin(self) -> SaslServer: ...
