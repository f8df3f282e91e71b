"""OAUTHBEARER, the broker's side: `n,[a=authzid],^Aauth=Bearer TOKEN^A…^A`, ^A being the byte 1.

A token that is not accepted is answered with a JSON text; the client sends the byte 1, and the exchange has failed.
"""

from __future__ import annotations

import re
from typing import Final

from flintmq.effects import Clock
from flintmq.protocol import scram
from flintmq.security.authentication.mechanism import Evaluation, SaslFailure, SaslStep
from flintmq.security.authentication.oauthbearer.keys import KeySource
from flintmq.security.authentication.oauthbearer.token import InvalidToken, TokenRules, verify_token

OAUTHBEARER: Final = "OAUTHBEARER"

_ERROR: Final = '{"status":"invalid_token"}'
_ACKNOWLEDGED: Final = b"\x01"
_FIRST = re.compile(
    r"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
    re.DOTALL,
)
_AUTH = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class OAuthBearerMechanism:
    def __init__(self, keys: KeySource, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock

    def begin(self) -> OAuthBearerServer:
        return OAuthBearerServer(self._keys, self._rules, self._clock)


class OAuthBearerServer:
    def __init__(self, keys: KeySource, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._refusal: str | None = None

    def evaluate(self, token: bytes) -> Evaluation:
        if self._refusal is not None:
            # Whatever the client sends after a refusal: it gets no second attempt on this connection.
            raise SaslFailure(self._refusal, _ERROR if token == _ACKNOWLEDGED else None)
        authorization_id, bearer = _parse(token)
        return lambda: self._judge(authorization_id, bearer)

    def _judge(self, authorization_id: str, bearer: str) -> SaslStep:
        try:
            identity = verify_token(bearer, self._rules, self._keys.find, self._clock.now_ms() / 1000)
        except InvalidToken as error:
            self._refusal = str(error)
            return SaslStep(_ERROR.encode())
        if authorization_id not in ("", identity.principal.name):
            raise SaslFailure(
                f"{identity.principal.name!r} asked to act as {authorization_id!r}",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        return SaslStep(b"", identity)


def _parse(token: bytes) -> tuple[str, str]:
    try:
        match = _FIRST.fullmatch(token.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslFailure("an OAUTHBEARER message that cannot be read")
    authorization_id, pairs = match.groups()
    values = dict(pair.split("=", 1) for pair in pairs.split("\x01") if pair)
    auth = _AUTH.fullmatch(values.get("auth", ""))
    if auth is None:
        raise SaslFailure("an OAUTHBEARER message without a bearer token")
    return scram.decode_name(authorization_id or ""), auth[1]
