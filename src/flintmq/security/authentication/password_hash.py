"""Passwords of the users file, hashed: `pbkdf2-sha512$ITERATIONS$SALT$HASH`, salt and hash in base64. Pure.

Hashing takes milliseconds on purpose: not for an event loop.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

PREFIX: Final = "pbkdf2-sha512"
ITERATIONS: Final = 50_000
ITERATIONS_MIN: Final = 10_000
ITERATIONS_MAX: Final = 1_000_000
"""More would let one line of a file occupy a thread for seconds with each authentication."""
SALT_BYTES: Final = 16


class PasswordHash(NamedTuple):
    iterations: int
    salt: bytes
    digest: bytes

    def matches(self, password: str) -> bool:
        return hmac.compare_digest(_digest(password, self.salt, self.iterations), self.digest)

    def __str__(self) -> str:
        salt, digest = base64.b64encode(self.salt).decode(), base64.b64encode(self.digest).decode()
        return f"{PREFIX}${self.iterations}${salt}${digest}"


def hash_password(password: str, salt: bytes, iterations: int = ITERATIONS) -> PasswordHash:
    return PasswordHash(iterations, salt, _digest(password, salt, iterations))


def parse_password_hash(text: str) -> PasswordHash:
    """ValueError says what was expected, and never quotes the text: it may be a password by mistake."""
    parts = text.split("$")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[1].isdecimal():
        raise ValueError(
            f"expected {PREFIX}$ITERATIONS$SALT$HASH, as `flintmq user add --users-file` writes it"
        )
    iterations = int(parts[1])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"expected between {ITERATIONS_MIN} and {ITERATIONS_MAX} iterations")
    try:
        salt, digest = base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
    except binascii.Error:
        raise ValueError("expected salt and hash in base64") from None
    if len(salt) < 8 or len(digest) != hashlib.sha512().digest_size:
        raise ValueError("expected a salt of at least 8 bytes and a hash of 64")
    return PasswordHash(iterations, salt, digest)


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode("utf-8", "surrogatepass"), salt, iterations)
