"""SCRAM-SHA-256 and SCRAM-SHA-512, the broker's side.

Kafka rejects an unknown user at the first message. Here it gets a salt, which is the same each time it is asked for,
and is rejected at the second, exactly as a known user with a wrong password is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

from flintmq.protocol import scram
from flintmq.protocol.scram import ClientFirst, ScramCredential, ScramError, ScramMechanism, ServerFirst
from flintmq.security.authentication.mechanism import Identity, SaslFailure, SaslStep
from flintmq.security.principal import Principal

TOKEN_EXTENSION = "tokenauth"
NONCE_BYTES = 18

_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class CredentialSource(Protocol):
    def find(self, mechanism: ScramMechanism, username: str) -> tuple[ScramCredential, bool]:
        """Return the credential of a user, and whether it is real: unknown users have one that fits no password."""
        ...


class TokenSource(Protocol):
    def find(self, mechanism: ScramMechanism, token_id: str) -> tuple[ScramCredential, Identity | None]:
        """Return the credential of a delegation token and its owner; without an owner the token is not valid."""
        ...


class ScramServerMechanism:
    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: CredentialSource,
        tokens: TokenSource,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._random_bytes = random_bytes

    def begin(self) -> ScramServer:
        nonce = base64.b64encode(self._random_bytes(NONCE_BYTES)).decode()
        return ScramServer(self._mechanism, self._credentials, self._tokens, nonce)


class _Started:
    """What the first message left for the second."""

    __slots__ = ("credential", "first", "identity", "response")

    def __init__(
        self,
        first: ClientFirst,
        response: ServerFirst,
        credential: ScramCredential,
        identity: Identity | None,
    ) -> None:
        self.first = first
        self.response = response
        self.credential = credential
        self.identity = identity
        """None if nobody has this credential."""


class ScramServer:
    def __init__(
        self, mechanism: ScramMechanism, credentials: CredentialSource, tokens: TokenSource, nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._nonce = nonce
        self._started: _Started | None = None
        self._is_over = False

    def evaluate(self, token: bytes) -> SaslStep:
        if self._is_over:
            raise SaslFailure("a SCRAM message after the last one")
        started, self._started = self._started, None
        try:
            if started is None:
                # ORDER: whatever goes wrong from here on, no further message is accepted.
                self._is_over = True
                step = self._begin(token)
                self._is_over = False
                return step
            self._is_over = True
            return self._finish(token, started)
        except ScramError as error:
            raise SaslFailure(str(error)) from None

    def _begin(self, token: bytes) -> SaslStep:
        first = scram.parse_client_first(token)
        identity: Identity | None
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            credential, identity = self._tokens.find(self._mechanism, first.username)
        else:
            credential, is_real = self._credentials.find(self._mechanism, first.username)
            identity = Identity(Principal("User", first.username)) if is_real else None
        if first.authorization_id not in ("", first.username):
            raise SaslFailure(f"{first.username!r} asked to act as {first.authorization_id!r}", _OTHER_ID)
        response = scram.server_first(first.nonce + self._nonce, credential)
        self._started = _Started(first, response, credential, identity)
        return SaslStep(response.text.encode())

    def _finish(self, token: bytes, started: _Started) -> SaslStep:
        final = scram.parse_client_final(token)
        if final.nonce != started.response.nonce:
            raise SaslFailure("a SCRAM final message with another nonce")
        if not _is_binding(final.channel_binding, started.first):
            raise SaslFailure("a SCRAM final message with another channel binding")
        message = scram.auth_message(started.first.bare, started.response.text, final.without_proof)
        proved = scram.proves(self._mechanism, started.credential, message, final.proof)
        if not proved or started.identity is None:
            raise SaslFailure(f"invalid credentials of {started.first.username!r}")
        signature = scram.server_signature(self._mechanism, started.credential.server_key, message)
        return SaslStep(b"v=" + base64.b64encode(signature), started.identity)


def _is_binding(binding: bytes, first: ClientFirst) -> bool:
    """Return whether the channel binding repeats the header of the first message.

    Clients that send `n,,` whatever the first message said exist, and Kafka accepts them.
    """
    return binding in (first.header.encode(), b"n,,")
