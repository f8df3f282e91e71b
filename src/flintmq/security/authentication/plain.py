"""PLAIN (RFC 4616): `[authzid] NUL username NUL password`, verified in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from flintmq.security.authentication.mechanism import Evaluation, Identity, SaslFailure, SaslStep
from flintmq.security.principal import Principal

PLAIN: Final = "PLAIN"

_REFUSED = "Authentication failed: Invalid username or password"
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class PasswordVerifier(Protocol):
    def verify(self, username: str, password: str) -> bool | Callable[[], bool]:
        """Return whether the password is the user's, or a function for a thread that does.

        Takes the same time whether the user exists or not.
        """
        ...


class PlainMechanism:
    def __init__(self, users: PasswordVerifier) -> None:
        self._users = users

    def begin(self) -> PlainServer:
        return PlainServer(self._users)


class PlainServer:
    def __init__(self, users: PasswordVerifier) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Evaluation:
        authorization_id, username, password = _parse(token)
        verified = self._users.verify(username, password)
        if isinstance(verified, bool):
            return _judge(verified, authorization_id, username)
        work = verified
        return lambda: _judge(work(), authorization_id, username)


def _judge(verified: bool, authorization_id: str, username: str) -> SaslStep:
    if not verified:
        raise SaslFailure(f"invalid username or password of {username!r}", _REFUSED)
    if authorization_id not in ("", username):
        raise SaslFailure(f"{username!r} asked to act as {authorization_id!r}", _OTHER_ID)
    return SaslStep(b"", Identity(Principal("User", username)))


def _parse(token: bytes) -> tuple[str, str, str]:
    try:
        parts = token.decode().split("\0", 3)
    except UnicodeDecodeError:
        raise SaslFailure("a PLAIN token that is not UTF-8", _REFUSED) from None
    if len(parts) != 3:
        message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        raise SaslFailure(message, message)
    authorization_id, username, password = parts
    if not username:
        raise SaslFailure("a PLAIN token without a username", "Authentication failed: username not specified")
    if not password:
        raise SaslFailure("a PLAIN token without a password", "Authentication failed: password not specified")
    return authorization_id, username, password
