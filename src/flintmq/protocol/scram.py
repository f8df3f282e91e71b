"""SCRAM (RFC 5802, RFC 7677): its messages and keys, for brokers, clients and tools. Pure.

    client first    n,[a=authzid],n=name,r=nonce[,extensions]
    server first    r=nonce,s=salt,i=iterations
    client final    c=channel binding,r=nonce,p=proof
    server final    v=signature

The limits are Kafka's: names are ASCII, only the flag `n` (no channel binding) is accepted, and passwords are used as
their UTF-8 bytes, without SASLprep. Nonces and salts come from the caller: this module has no randomness.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from enum import Enum
from typing import Final, NamedTuple

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_RESERVED = rf"(?:m={_VALUE},)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST = re.compile(
    rf"(n,(?:a=({_NAME}))?,)({_RESERVED}n=({_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))", re.DOTALL
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=({_PRINTABLE}),s=({_BASE64}),i=([0-9]{{1,9}}){_EXTENSIONS}", re.DOTALL
)
_CLIENT_FINAL = re.compile(rf"(c=({_BASE64}),r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})", re.DOTALL)
_SERVER_FINAL = re.compile(rf"(?:e=({_VALUE})|v=({_BASE64})){_EXTENSIONS}", re.DOTALL)


class ScramError(ValueError):
    """A message that is not SCRAM's, or that must not be accepted."""


class ScramMechanism(Enum):
    """The value is the name of the mechanism; `type` is Kafka's number for it."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def type(self) -> int:
        return 1 if self is ScramMechanism.SHA_256 else 2

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_size(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64


MECHANISM_NAMES: Final = tuple(one.value for one in ScramMechanism)
BY_TYPE: Final = {one.type: one for one in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a broker keeps of a password: enough to verify it, not enough to use it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


# ---- keys


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Take some milliseconds: not for an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    client_key = _hmac(mechanism, salted, b"Client Key")
    return _xor(client_key, _hmac(mechanism, _hash(mechanism, client_key), auth_message))


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    return _hmac(mechanism, server_key, auth_message)


def server_key_of(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return _hmac(mechanism, salted, b"Server Key")


def proves(mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes) -> bool:
    """Return whether a client that sent this proof knows the password. Takes the same time for any proof."""
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    is_sized = len(proof) == len(signature)
    client_key = _xor(proof if is_sized else bytes(len(signature)), signature)
    return hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key) and is_sized


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


# ---- messages


class ClientFirst(NamedTuple):
    header: str
    """Flag and authorization id (`n,a=alice,`), which the final message repeats."""
    bare: str
    username: str
    authorization_id: str
    """Empty if the client asks for none."""
    nonce: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes


class ServerFinal(NamedTuple):
    error: str | None
    signature: bytes


def parse_client_first(token: bytes) -> ClientFirst:
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise ScramError("Invalid SCRAM client first message format")
    header, authorization_id, bare, name, nonce, extensions = match.groups()
    pairs = (pair.partition("=") for pair in extensions.split(",")[1:])
    return ClientFirst(
        header,
        bare,
        decode_name(name),
        decode_name(authorization_id) if authorization_id else "",
        nonce,
        {key: value for key, _, value in pairs},
    )


def parse_server_first(token: bytes) -> ServerFirst:
    text = _text(token)
    match = _SERVER_FIRST.fullmatch(text)
    if match is None:
        raise ScramError("Invalid SCRAM server first message format")
    nonce, salt, iterations = match.groups()
    return ServerFirst(text, nonce, base64.b64decode(salt), int(iterations))


def server_first(nonce: str, credential: ScramCredential) -> ServerFirst:
    text = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
    return ServerFirst(text, nonce, credential.salt, credential.iterations)


def parse_client_final(token: bytes) -> ClientFinal:
    match = _CLIENT_FINAL.fullmatch(_text(token))
    if match is None:
        raise ScramError("Invalid SCRAM client final message format")
    without_proof, binding, nonce, proof = match.groups()
    return ClientFinal(without_proof, base64.b64decode(binding), nonce, base64.b64decode(proof))


def parse_server_final(token: bytes) -> ServerFinal:
    match = _SERVER_FINAL.fullmatch(_text(token))
    if match is None:
        raise ScramError("Invalid SCRAM server final message format")
    error, signature = match.groups()
    return ServerFinal(error, base64.b64decode(signature or ""))


def auth_message(client_first_bare: str, server_first_text: str, final_without_proof: str) -> bytes:
    """Return what both sides sign: everything that was exchanged."""
    return f"{client_first_bare},{server_first_text},{final_without_proof}".encode()


def encode_name(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def decode_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def is_name(username: str) -> bool:
    """Return whether SCRAM, as Kafka speaks it, can carry this name."""
    return re.fullmatch(_NAME, encode_name(username), re.DOTALL) is not None


def _text(token: bytes) -> str:
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise ScramError("A SCRAM message that is not ASCII") from None
