"""Tokens as an identity provider signs them, and its public keys."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int) -> str:
    return base64url(value.to_bytes(size, "big"))


def rsa_entry(key: rsa.RSAPrivateKey = RSA_KEY, key_id: str = "rsa", **more: str) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    size = key.key_size // 8
    return {"kty": "RSA", "kid": key_id, "e": _number(numbers.e, 3), "n": _number(numbers.n, size), **more}


def ec_entry() -> dict[str, str]:
    numbers = EC_KEY.public_key().public_numbers()
    return {
        "kty": "EC",
        "crv": "P-256",
        "kid": "ec",
        "x": _number(numbers.x, 32),
        "y": _number(numbers.y, 32),
    }


def key_set(*entries: dict[str, str]) -> str:
    return json.dumps({"keys": list(entries or (rsa_entry(), ec_entry()))})


def signed(
    claims: dict[str, Any],
    *,
    algorithm: str = "RS256",
    key: Any = RSA_KEY,
    header: dict[str, Any] | None = None,
) -> str:
    head = {"alg": algorithm, "kid": "ec" if algorithm == "ES256" else "rsa", **(header or {})}
    text = f"{base64url(json.dumps(head).encode())}.{base64url(json.dumps(claims).encode())}"
    return f"{text}.{base64url(_signature(text.encode(), algorithm, key))}"


def signed_text(claims: str, header: str = '{"alg": "RS256", "kid": "rsa"}') -> str:
    """A token whose parts are JSON texts as they are given."""
    text = f"{base64url(header.encode())}.{base64url(claims.encode())}"
    return f"{text}.{base64url(_signature(text.encode(), 'RS256', RSA_KEY))}"


def _signature(data: bytes, algorithm: str, key: Any) -> bytes:
    if algorithm == "ES256":
        r, s = utils.decode_dss_signature(EC_KEY.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if algorithm == "PS256":
        salted = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
        return bytes(key.sign(data, salted, hashes.SHA256()))
    return bytes(key.sign(data, padding.PKCS1v15(), hashes.SHA256()))
