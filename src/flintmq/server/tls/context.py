"""From settings to an `ssl.SSLContext`: what OpenSSL is given, and what it must refuse.

Python loads keys from paths only, so that a key goes through an anonymous file in memory (memfd), never through a
disk. Blocking: called in a thread.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from flintmq.effects.memory_file import in_memory
from flintmq.errors import ConfigurationError
from flintmq.security.certificate import CertificateInfo, read_certificate
from flintmq.security.principal_mapping import PrincipalMapping
from flintmq.server.tls.stores import KeyMaterial, read_keystore, read_truststore
from flintmq.settings.tls import TlsSettings

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsContext:
    """Everything that new connections of one listener need."""

    ssl: ssl.SSLContext
    mapping: PrincipalMapping
    certificate: CertificateInfo


def build_context(settings: TlsSettings) -> TlsContext:
    """Raise ConfigurationError that says which setting is wrong."""
    try:
        mapping = PrincipalMapping(settings.principal_mapping_rules)
    except ValueError as error:
        raise ConfigurationError(f"ssl.principal.mapping.rules: {error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # Every connection shows its certificate: a resumed one would go by what was valid earlier.
    context.num_tickets = 0
    if settings.ciphers:
        _set_ciphers(context, settings.ciphers)
    keys = read_keystore(settings.keystore)
    _load_keys(context, keys)
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        # As in Java, whatever is in the trust store is trusted, also if it is not the root of a chain.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=read_truststore(settings.truststore))
        except ssl.SSLError as error:
            raise ConfigurationError(f"the trust store cannot be used: {error.reason or error}") from None
    try:
        certificate = read_certificate(keys.certificate)
    except ValueError as error:
        raise ConfigurationError(f"the broker's certificate cannot be read: {error}") from None
    return TlsContext(context, mapping, certificate)


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise ConfigurationError(
                f"ssl.cipher.suites: {name} is not available in {ssl.OPENSSL_VERSION}; "
                "`openssl ciphers -s -tls1_2` lists those that are"
            ) from None
    context.set_ciphers(":".join(names))


def _load_keys(context: ssl.SSLContext, keys: KeyMaterial) -> None:
    def password() -> str:
        # Without a function OpenSSL would ask at the terminal.
        if keys.password is None:
            raise ConfigurationError("the private key is encrypted; set ssl.key.password")
        return keys.password

    with in_memory(keys.pem) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            words = {
                "KEY_VALUES_MISMATCH": "the private key does not belong to the first certificate",
                "BAD_DECRYPT": "ssl.key.password is wrong",
                "EE_KEY_TOO_SMALL": "the key is too short; use RSA with 2048 bits or more, or an elliptic curve",
            }
            raise ConfigurationError(f"the key store cannot be used: {words.get(reason, reason)}") from None
