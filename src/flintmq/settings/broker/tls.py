"""TLS of listeners: keys and certificates, trust, protocol versions; and the time before a client is known.

All `ssl.…` settings may be set for one listener, as `listener.name.NAME.ssl.…`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import SettingKind, ValueCheck, at_least, one_of
from flintmq.settings.tls import (
    CLIENT_AUTH,
    PROTOCOLS,
    STORE_TYPES,
    openssl_cipher,
    read_protocols,
    read_store_type,
)


def _store(name: str, kind: SettingKind, default: Any, doc: str, **others: Any) -> Any:
    return setting(name, kind, default, doc=doc, dynamic=UpdateMode.PER_BROKER, per_listener=True, **others)


def _read_ciphers(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        openssl_cipher(name)
    return names


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class TlsConfig:
    __slots__ = ()

    ssl_keystore_type: str = _store(
        "ssl.keystore.type",
        SettingKind.STRING,
        "PEM",
        "The format of the key store: PEM, or PKCS12 with the extra `security`. Kafka's default is JKS, which is not "
        "available; keytool converts such a file.",
        read=read_store_type,
        check=one_of(*STORE_TYPES),
    )
    ssl_keystore_location: str | None = _store(
        "ssl.keystore.location",
        SettingKind.STRING,
        None,
        "The file with the private key and the certificate chain of the broker, the broker's own certificate first. "
        "A changed file is loaded within seconds.",
    )
    ssl_keystore_password: str | None = _store(
        "ssl.keystore.password",
        SettingKind.PASSWORD,
        None,
        "The password of a PKCS12 key store.",
    )
    ssl_keystore_certificate_chain: str | None = _store(
        "ssl.keystore.certificate.chain",
        SettingKind.PASSWORD,
        None,
        "The certificate chain itself, as PEM, in place of a file.",
    )
    ssl_keystore_key: str | None = _store(
        "ssl.keystore.key",
        SettingKind.PASSWORD,
        None,
        "The private key itself, as PEM, in place of a file. It never reaches a disk through the broker.",
    )
    ssl_key_password: str | None = _store(
        "ssl.key.password",
        SettingKind.PASSWORD,
        None,
        "The password of the private key in a PEM file or in ssl.keystore.key.",
    )
    ssl_truststore_type: str = _store(
        "ssl.truststore.type",
        SettingKind.STRING,
        "PEM",
        "The format of the trust store: PEM, or PKCS12 with the extra `security`.",
        read=read_store_type,
        check=one_of(*STORE_TYPES),
    )
    ssl_truststore_location: str | None = _store(
        "ssl.truststore.location",
        SettingKind.STRING,
        None,
        "The file with the certificates that client certificates must be signed by.",
    )
    ssl_truststore_password: str | None = _store(
        "ssl.truststore.password",
        SettingKind.PASSWORD,
        None,
        "The password of a PKCS12 trust store.",
    )
    ssl_truststore_certificates: str | None = _store(
        "ssl.truststore.certificates",
        SettingKind.PASSWORD,
        None,
        "The trusted certificates themselves, as PEM, in place of a file.",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        SettingKind.STRING,
        "none",
        per_listener=True,
        check=one_of(*CLIENT_AUTH),
        doc="Whether clients show a certificate: required, requested or none. For a SASL_SSL listener only the value "
        "set for that listener counts.",
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        SettingKind.STRING,
        "DEFAULT",
        per_listener=True,
        doc="How the distinguished name of a client certificate becomes the name of the principal: DEFAULT, or a "
        "list of RULE:pattern/replacement/[LU]; the first that matches decides.",
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        SettingKind.STRING,
        "TLSv1.3",
        per_listener=True,
        check=one_of("TLS", *PROTOCOLS),
        doc="The highest version of TLS: TLSv1.3 or TLSv1.2; TLS means the highest there is.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        SettingKind.LIST,
        PROTOCOLS,
        per_listener=True,
        read=read_protocols,
        check=ValueCheck("TLSv1.2, TLSv1.3 or both", lambda value: len(value) > 0),
        doc="The versions of TLS that clients may use. Older ones are broken and not available.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        SettingKind.LIST,
        (),
        per_listener=True,
        read=_read_ciphers,
        doc="The cipher suites of TLS 1.2 that clients may use, by their IANA or OpenSSL names; empty takes "
        "OpenSSL's choice. Suites of TLS 1.3 cannot be chosen.",
    )
    flint_authentication_timeout_ms: int = setting(
        "flint.authentication.timeout.ms",
        SettingKind.INT,
        15_000,
        check=at_least(100),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="The time that a client has for the TLS handshake and its authentication together.",
    )
    flint_max_unauthenticated_connections: int = setting(
        "flint.max.unauthenticated.connections",
        SettingKind.INT,
        2000,
        check=at_least(1),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="Connections that may be in the TLS handshake or in authentication at the same time. Beyond it the one "
        "that has been there longest is closed for a new one, or the new one if all of them are recent.",
    )
    flint_max_unauthenticated_connections_per_ip: int = setting(
        "flint.max.unauthenticated.connections.per.ip",
        SettingKind.INT,
        500,
        check=at_least(1),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="The same for connections from one address, of which the oldest is closed for a new one.",
    )
