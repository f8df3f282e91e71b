"""The public keys of token issuers: JSON Web Key Sets (RFC 7517), and such a set in a file that may change.

`cryptography` (the extra `security`) verifies signatures. Only signatures with a private key are accepted: RS, PS and
ES with SHA-2. `none` and signatures with a shared secret (HS) are not in the list, whatever a key or a token says.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from flintmq.errors import ConfigurationError

logger = logging.getLogger(__name__)

_FILE_BYTES_MAX: Final = 4 << 20
_RSA_BITS_MIN: Final = 2048
_RSA_BITS_MAX: Final = 16384
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = (*_RSA, *_CURVES.values())


class VerificationKey(NamedTuple):
    id: str
    algorithms: tuple[str, ...]
    """Those that the key may be used with."""
    public_key: Any

    def verifies(self, algorithm: str, signature: bytes, signed: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

        if algorithm not in self.algorithms:
            return False
        digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]
        try:
            if algorithm.startswith("ES"):
                half = (self.public_key.curve.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                numbers = (int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big"))
                self.public_key.verify(utils.encode_dss_signature(*numbers), signed, ec.ECDSA(digest))
            elif algorithm.startswith("RS"):
                self.public_key.verify(signature, signed, padding.PKCS1v15(), digest)
            else:
                salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
                self.public_key.verify(signature, signed, salted, digest)
        except (InvalidSignature, ValueError):
            return False
        return True


def parse_keys(text: str) -> list[VerificationKey]:
    """Read a key set; ValueError names the key that is wrong. Keys for encryption are left out."""
    try:
        found = json.loads(text)
        entries = found["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError('expected a JSON Web Key Set: {"keys": […]}') from None
    if not isinstance(entries, list):
        raise ValueError('expected a JSON Web Key Set: {"keys": […]}')
    keys = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = _key(entry)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ValueError(f"key {number}: {error}") from None
        if key is not None:
            keys.append(key)
    if not keys:
        raise ValueError("there is no RSA or EC key for signatures in it")
    return keys


def _key(entry: dict[str, Any]) -> VerificationKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    algorithms: tuple[str, ...]
    key: Any
    if entry.get("kty") == "RSA":
        exponent, modulus = _number(entry["e"]), _number(entry["n"])
        if not _RSA_BITS_MIN <= modulus.bit_length() <= _RSA_BITS_MAX:
            raise ValueError(f"an RSA key needs {_RSA_BITS_MIN} to {_RSA_BITS_MAX} bits")
        key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
        algorithms = _RSA
    elif entry.get("kty") == "EC" and entry.get("crv") in _CURVES:
        curve = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}[entry["crv"]]
        key = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve).public_key()
        algorithms = (_CURVES[entry["crv"]],)
    else:
        return None
    if "alg" in entry:
        algorithms = tuple(one for one in algorithms if one == entry["alg"])
    return VerificationKey(str(entry.get("kid", "")), algorithms, key)


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def choose(keys: Sequence[VerificationKey], key_id: str) -> VerificationKey | None:
    """Return the key of that id; without an id, the only key if there is one."""
    if not key_id:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.id == key_id), None)


def require_package() -> None:
    """Raise ConfigurationError if `cryptography` is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "OAUTHBEARER needs the package cryptography; install flintmq[security]"
        ) from None


class KeySource(Protocol):
    def find(self, key_id: str) -> VerificationKey | None:
        """Return the key of that id; without an id, the only key if there is one. Called in threads."""
        ...


class KeyFile:
    """Reading blocks: `find` is for threads."""

    def __init__(self, path: str) -> None:
        """ConfigurationError if the file cannot be used at the start, or `cryptography` is missing."""
        require_package()
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: list[VerificationKey] = []
        self._refresh()

    def find(self, key_id: str) -> VerificationKey | None:
        """Return the key of that id; without an id, the only key if there is one."""
        try:
            self._refresh()
        except ConfigurationError as error:
            logger.error("the keys stay as they were: %s", error)
        return choose(self._keys, key_id)

    def _refresh(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._seen:
                return
            # ORDER: remembered first, so that a file with a mistake is reported once.
            self._seen = stamp
            if found.st_size > _FILE_BYTES_MAX:
                raise ValueError(f"it is larger than {_FILE_BYTES_MAX} bytes")
            with open(self._path, encoding="utf-8") as file:
                self._keys = parse_keys(file.read())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(
                f"the keys in {self._path} (sasl.oauthbearer.jwks.endpoint.url) cannot be used: {reason}"
            ) from None
