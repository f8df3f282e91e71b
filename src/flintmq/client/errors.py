"""What goes wrong between a client and its brokers.

FlintError
├── ClientError
│   ├── NoBrokerReached      nothing answers at any address that is known
│   ├── AuthenticationFailed a broker does not accept who the client claims to be, or the other way round
│   │   └── TlsFailed        a certificate cannot be verified, or there is no TLS at all
│   ├── ConnectionLost       a connection broke or fell silent; the request may have been carried out
│   └── NotFlintMQ           a broker closes the connection when it is asked for what only FlintMQ has
└── RequestError             a broker answered, with an error code (`flintmq.errors`)
"""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.client.addresses import Address
from flintmq.errors import ErrorCode, FlintError, RequestError


class ClientError(FlintError):
    """The root of what a client finds wrong by itself."""


class NoBrokerReached(ClientError):
    """Nothing answers; the reasons say what happened at each address."""

    def __init__(self, reasons: Sequence[tuple[Address, str]], hint: str = "is it running?") -> None:
        tried = ", ".join(f"{address} ({reason})" for address, reason in reasons)
        super().__init__(f"no broker answers at {tried}; {hint}")
        self.reasons = tuple(reasons)


class ConnectionLost(ClientError):
    """A connection ended in the middle of things."""

    def __init__(self, address: Address, reason: str, *, by_broker: bool = False) -> None:
        super().__init__(f"the connection to {address} was lost: {reason}")
        self.address = address
        self.reason = reason
        self.by_broker = by_broker
        """It was there, and closed the connection."""


class AuthenticationFailed(ClientError):
    """Trying again with the same credentials would not help."""

    def __init__(self, address: Address, reason: str, *, by_broker: bool = True) -> None:
        whose = f"{address} rejected the authentication" if by_broker else f"no authentication at {address}"
        super().__init__(f"{whose}: {reason}")
        self.address = address
        self.reason = reason


class TlsFailed(AuthenticationFailed):
    """No encrypted connection: a certificate, a host name or the protocol itself is wrong."""

    def __init__(self, address: Address, reason: str) -> None:
        ClientError.__init__(self, f"no TLS connection to {address}: {reason}")
        self.address = address
        self.reason = reason


class NotFlintMQ(ClientError):
    """What was asked for is FlintMQ's own, and this broker does not know it."""

    def __init__(self, address: Address) -> None:
        super().__init__(f"{address} is not a FlintMQ broker, or an older one: it does not know this request")
        self.address = address


def may_pass(error: FlintError) -> bool:
    """Return whether what a client found wrong by itself may be right at another attempt."""
    return isinstance(error, ClientError) and not isinstance(error, AuthenticationFailed)


def check(code: int, message: str | None = None, *, what: str = "") -> None:
    """Raise what a broker's error code says; nothing for NONE. `what` is named in front of the message."""
    if code == ErrorCode.NONE:
        return
    try:
        known = ErrorCode(code)
    except ValueError:
        known, message = ErrorCode.UNKNOWN_SERVER_ERROR, message or f"the broker answered error code {code}"
    text = message or _WORDS.get(known) or known.name
    raise RequestError(known, f"{what}: {text}" if what else text)


_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no such topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "not a valid topic name",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than the topic takes (max.message.bytes)",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than the topic demands (min.insync.replicas)",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not do it in time",
    ErrorCode.CORRUPT_MESSAGE: "the stored or sent records fail their check",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the broker has no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner and the renewers of a token may change it",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens need a connection that is authenticated by SASL or a "
    "client certificate, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "an ACL must allow CreateTokens on the owner",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired; create another",
}
