"""Key stores and trust stores: PEM or PKCS12, from a file or from the settings, always returned as PEM.

Errors name the setting and what to do. A private key stays in memory: nothing here writes a file.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flintmq.errors import ConfigurationError
from flintmq.settings.tls import JKS_REASON, StoreSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_STORE_BYTES_MAX: Final = 8 << 20
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = b"\x30"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """The chain and the key of a broker."""

    pem: bytes = field(repr=False)
    """Key and certificates together, as OpenSSL loads them."""
    certificate: bytes
    """The broker's own certificate, DER."""
    password: str | None = field(repr=False)


def read_keystore(store: StoreSettings) -> KeyMaterial:
    if store.location is None:
        text = f"{_text(store.key)}\n{_text(store.certificates)}"
        what = "ssl.keystore.key and ssl.keystore.certificate.chain"
    else:
        data, what = _read_file(store.location, "ssl.keystore"), f"ssl.keystore.location={store.location}"
        if store.kind == "PKCS12":
            return _from_pkcs12(data, store.password, what)
        text = _decode(data, what, "ssl.keystore")
    blocks = _blocks(text)
    certificates = [body for label, body in blocks if label.endswith("CERTIFICATE")]
    keys = [label for label, _ in blocks if label.endswith("PRIVATE KEY")]
    if not certificates:
        raise ConfigurationError(f"{what} holds no certificate (-----BEGIN CERTIFICATE-----)")
    if len(keys) != 1:
        raise ConfigurationError(f"{what} must hold one private key, and holds {len(keys)}")
    pem = "".join(_wrapped(label, body) for label, body in blocks)
    return KeyMaterial(pem.encode(), _der(certificates[0], what), store.key_password)


def read_truststore(store: StoreSettings) -> str:
    """Return the trusted certificates as PEM."""
    if store.location is None:
        text, what = _text(store.certificates), "ssl.truststore.certificates"
    else:
        data, what = _read_file(store.location, "ssl.truststore"), f"ssl.truststore.location={store.location}"
        text = (
            _certificates_of_pkcs12(data, store.password, what)
            if store.kind == "PKCS12"
            else _decode(data, what, "ssl.truststore")
        )
    found = [(label, body) for label, body in _blocks(text) if label.endswith("CERTIFICATE")]
    if not found:
        raise ConfigurationError(f"{what} holds no certificate (-----BEGIN CERTIFICATE-----)")
    return "".join(_wrapped(label, body) for label, body in found)


def file_state(store: StoreSettings) -> tuple[int, int, int] | None:
    """Return what changes when the file of the store is replaced; None if there is no file to look at."""
    if store.location is None:
        return None
    try:
        found = os.stat(store.location)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _text(value: str | None) -> str:
    # A properties file or an environment variable often has the two characters in place of a line end.
    return (value or "").replace("\\n", "\n")


def _read_file(path: str, setting: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{setting}.location={path} cannot be read: {error.strerror}") from error
    if len(data) > _STORE_BYTES_MAX:
        raise ConfigurationError(f"{setting}.location={path} has more than {_STORE_BYTES_MAX} bytes")
    if data.startswith(_JKS_MAGIC):
        raise ConfigurationError(f"{setting}.location={path}: {JKS_REASON}")
    return data


def _decode(data: bytes, what: str, setting: str) -> str:
    if data.startswith(_DER_SEQUENCE):
        raise ConfigurationError(f"{what} looks like PKCS12; set {setting}.type=PKCS12")
    return data.decode("utf-8", errors="replace")


def _blocks(text: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in _BLOCK.finditer(text)]


def _wrapped(label: str, body: str) -> str:
    """Write a block as OpenSSL wants it: one that came as a single line is broken into lines."""
    if ":" not in body:
        joined = "".join(body.split())
        body = "\n".join(joined[at : at + _LINE] for at in range(0, len(joined), _LINE))
        body = f"\n{body}\n"
    return f"-----BEGIN {label}-----{body}-----END {label}-----\n"


def _der(body: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as error:
        raise ConfigurationError(f"{what} holds a certificate that is not valid Base64: {error}") from None


def _from_pkcs12(data: bytes, password: str | None, what: str) -> KeyMaterial:
    store = _open_pkcs12(data, password, what)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ConfigurationError(f"{what} holds no private key with its certificate")
    pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [store.cert, *store.additional_certs]
    pem += b"".join(one.certificate.public_bytes(Encoding.PEM) for one in chain)
    return KeyMaterial(pem, store.cert.certificate.public_bytes(Encoding.DER), None)


def _certificates_of_pkcs12(data: bytes, password: str | None, what: str) -> str:
    store = _open_pkcs12(data, password, what)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    return b"".join(one.public_bytes(Encoding.PEM) for one in found).decode()


def _open_pkcs12(data: bytes, password: str | None, what: str) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigurationError(
            f"{what}: PKCS12 needs the extra `security`; install it: pip install 'flintmq[security]'"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError as error:
        raise ConfigurationError(
            f"{what} cannot be opened: {error}; check the password and that the file is PKCS12"
        ) from None
