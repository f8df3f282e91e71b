"""SASL, the client's side: PLAIN, SCRAM and OAUTHBEARER as state machines that make tokens. Pure.

    client = sasl_client("SCRAM-SHA-512", "alice", "secret", nonce)
    token = client.first()                   →  to the broker
    token = client.next(challenge)           ←  the broker's token; None: nothing more is to be sent

Invariant: a SCRAM client that returns None has proof that the broker knows the credential too. A broker cannot make
it hash for long: iterations have an upper bound, and a lower one, since few iterations would give the password away.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import Final, Protocol

from flintmq.errors import ConfigurationError
from flintmq.protocol import scram
from flintmq.protocol.scram import ITERATIONS_MIN, ScramError, ScramMechanism

OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", *scram.MECHANISM_NAMES, OAUTHBEARER)
ITERATIONS_MAX: Final = 1_000_000
NONCE_BYTES: Final = 18
_BEARER: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_ACKNOWLEDGED: Final = b"\x01"


class SaslClientError(Exception):
    """The broker's tokens are not what the mechanism allows: it may not be the broker that it claims to be."""


class SaslClient(Protocol):
    def first(self) -> bytes: ...

    def next(self, challenge: bytes) -> bytes | None:
        """Return the answer to a token of the broker; None if it was the last. SaslClientError if it is wrong."""
        ...


def sasl_client(
    mechanism: str, username: str, password: str, nonce: bytes, *, is_delegation_token: bool = False
) -> SaslClient:
    """`nonce` are NONCE_BYTES random bytes."""
    if mechanism == "PLAIN":
        return PlainClient(username, password)
    if mechanism in scram.MECHANISM_NAMES:
        return ScramClient(
            ScramMechanism(mechanism),
            username,
            password,
            base64.b64encode(nonce).decode(),
            is_delegation_token=is_delegation_token,
        )
    raise ConfigurationError(
        f"sasl.mechanism={mechanism} is not available; use one of {', '.join(MECHANISMS)}"
    )


class PlainClient:
    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise ConfigurationError("a username or password for PLAIN cannot contain a NUL character")
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def next(self, challenge: bytes) -> bytes | None:
        return None


class ScramClient:
    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: str,
        nonce: str,
        *,
        is_delegation_token: bool = False,
    ) -> None:
        if not scram.is_name(username):
            raise ConfigurationError(f"{username!r} cannot be a username of SCRAM: use ASCII characters")
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={scram.encode_name(username)},r={nonce}"
        if is_delegation_token:
            self._bare += ",tokenauth=true"
        self._signature: bytes | None = None
        self._is_over = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_over:
            raise SaslClientError("the broker sent a token after the last one")
        try:
            if self._signature is None:
                return self._prove(challenge)
            self._is_over = True
            self._verify(challenge, self._signature)
        except ScramError as error:
            raise SaslClientError(str(error)) from None
        return None

    def _prove(self, challenge: bytes) -> bytes:
        first = scram.parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise SaslClientError("the broker answered with another nonce")
        if not ITERATIONS_MIN <= first.iterations <= ITERATIONS_MAX:
            raise SaslClientError(
                f"the broker asks for {first.iterations} iterations; "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        salted = scram.salted_password(self._mechanism, self._password, first.salt, first.iterations)
        without_proof = f"c=biws,r={first.nonce}"
        message = scram.auth_message(self._bare, first.text, without_proof)
        server_key = scram.server_key_of(self._mechanism, salted)
        self._signature = scram.server_signature(self._mechanism, server_key, message)
        proof = scram.client_proof(self._mechanism, salted, message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes, expected: bytes) -> None:
        final = scram.parse_server_final(challenge)
        if final.error is not None:
            raise SaslClientError(f"the broker reports {final.error}")
        if not hmac.compare_digest(final.signature, expected):
            raise SaslClientError("the broker does not know the credential: its signature is wrong")


class BearerClient:
    """OAUTHBEARER (RFC 7628): the token, and an acknowledgement of the broker's error."""

    def __init__(self, token: str) -> None:
        if not _BEARER.fullmatch(token):
            raise ConfigurationError(
                "the token of OAUTHBEARER is empty or has characters that no token has; check where it comes from"
            )
        self._token = token
        self._is_rejected = False

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, challenge: bytes) -> bytes | None:
        # The broker's text says no more than that the token is not accepted; its last response has the reason.
        if not challenge:
            return None
        if self._is_rejected:
            raise SaslClientError("the broker does not accept the token")
        self._is_rejected = True
        return _ACKNOWLEDGED
