"""What a JSON Web Token must be to be accepted (RFC 7519): signed by a known key, for us, by the issuer, and now."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flintmq.security.authentication.mechanism import Identity
from flintmq.security.authentication.oauthbearer.keys import ALGORITHMS, VerificationKey
from flintmq.security.principal import Principal


class InvalidToken(Exception):
    """Says why, for the log. Clients are only told that the token is invalid."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    audiences: tuple[str, ...] = ()
    """One of them must be the token's; none: any."""
    issuer: str | None = None
    name_claim: str = "sub"
    clock_skew_s: int = 30


def verify_token(
    token: str, rules: TokenRules, find_key: Callable[[str], VerificationKey | None], now_s: float
) -> Identity:
    """Return who the token is for; InvalidToken if it must not be accepted."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("a token has three parts")
    header = _object(parts[0], "header")
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"the algorithm {algorithm!r} is not accepted")
    if "crit" in header:
        raise InvalidToken("a token with critical extensions is not understood")
    key_id = header.get("kid", "")
    key = find_key(key_id) if isinstance(key_id, str) else None
    if key is None:
        raise InvalidToken(f"there is no key {key_id!r}")
    # ORDER: nothing of the claims is looked at before the signature is verified.
    if not key.verifies(algorithm, _decoded(parts[2], "signature"), f"{parts[0]}.{parts[1]}".encode()):
        raise InvalidToken("the signature is wrong")
    return _identity(_object(parts[1], "claims"), rules, now_s)


def _identity(claims: dict[str, Any], rules: TokenRules, now_s: float) -> Identity:
    expires_s, skew_s = _time(claims, "exp"), rules.clock_skew_s
    if expires_s is None:
        raise InvalidToken("a token needs an end (exp)")
    if now_s >= expires_s + skew_s:
        raise InvalidToken("the token has expired")
    for claim in ("nbf", "iat"):
        begins_s = _time(claims, claim)
        if begins_s is not None and now_s < begins_s - skew_s:
            raise InvalidToken(f"the token is not valid yet ({claim})")
    audience = claims.get("aud", [])
    named = [audience] if isinstance(audience, str) else audience
    if rules.audiences and not (isinstance(named, list) and any(one in rules.audiences for one in named)):
        raise InvalidToken("the token is for another audience")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token is of another issuer")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name:
        raise InvalidToken(f"the token names nobody ({rules.name_claim})")
    return Identity(Principal("User", name), expires_ms=int(expires_s * 1000))


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise InvalidToken(f"{name} is not a time")
    return float(value)


def _object(part: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part, what), object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError):
        raise InvalidToken(f"the {what} cannot be read") from None
    if not isinstance(found, dict):
        raise InvalidToken(f"the {what} cannot be read")
    return found


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; ValueError for a name that is there twice, which readers may understand differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _decoded(part: str, what: str) -> bytes:
    try:
        if "=" in part or "+" in part or "/" in part:
            raise ValueError
        return base64.b64decode(
            part.replace("-", "+").replace("_", "/") + "=" * (-len(part) % 4), validate=True
        )
    except (ValueError, binascii.Error):
        raise InvalidToken(f"the {what} is not base64url") from None
