"""TLS settings of one listener, resolved, and what is wrong with them. Pure: no file is read here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flintmq.settings.listeners import SecurityProtocol, listener_setting, protocols_of

if TYPE_CHECKING:
    from flintmq.settings.broker import BrokerConfig

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12")
CLIENT_AUTH: Final = ("none", "requested", "required")
JKS_REASON: Final = (
    "JKS files cannot be read here; convert it: keytool -importkeystore -srckeystore FILE.jks -destkeystore FILE.p12 "
    "-deststoretype PKCS12, and set the type to PKCS12"
)
_OLD_PROTOCOLS: Final = ("SSL", "SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1")
_TLS_1_3_SUITE: Final = re.compile(r"TLS_(AES|CHACHA20)_[A-Z0-9_]+")
_IANA_SUITE: Final = re.compile(r"TLS_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>[A-Z0-9_]+)")
_OPENSSL_SUITE: Final = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)*")


def read_store_type(text: str) -> str:
    kind = text.strip().upper()
    if kind == "JKS":
        raise ValueError(JKS_REASON)
    return kind


def read_protocols(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name in _OLD_PROTOCOLS:
            raise ValueError(f"{name} is broken (RFC 8996) and not available; use TLSv1.2 and TLSv1.3")
        if name not in PROTOCOLS:
            raise ValueError(f"{name!r} is not one of {', '.join(PROTOCOLS)}")
    return names


def openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite that is given by its IANA name or by OpenSSL's."""
    if _TLS_1_3_SUITE.fullmatch(name):
        raise ValueError(
            f"{name} is a suite of TLS 1.3, and Python cannot choose among those; leave it out (all suites of "
            "TLS 1.3 are secure), or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    match = _IANA_SUITE.fullmatch(name)
    if match is None:
        if name.startswith("TLS_") or not _OPENSSL_SUITE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a cipher suite")
        return name
    exchange = match["exchange"].replace("_", "-")
    cipher = (
        re.sub(r"(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", match["cipher"]).replace("_CBC", "").replace("_", "-")
    )
    if cipher.startswith("CHACHA20-POLY1305"):
        cipher = "CHACHA20-POLY1305"
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """A key store or a trust store: a file, or PEM texts."""

    kind: str
    location: str | None
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        return self.location is not None or self.certificates is not None or self.key is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What one listener's TLS is made from."""

    listener: str
    keystore: StoreSettings
    truststore: StoreSettings
    client_auth: str
    principal_mapping_rules: str
    protocols: tuple[str, ...]
    ciphers: tuple[str, ...]


def tls_settings(config: BrokerConfig, listener: str) -> TlsSettings:
    def text(name: str) -> str | None:
        value = listener_setting(config, listener, name)
        return None if value is None or value == "" else str(value)

    # The HTTP port is not among the listeners.
    protocol = protocols_of(config).get(listener, SecurityProtocol.SSL)
    client_auth = (
        config.listener_overrides.get((listener, "ssl.client.auth"), "none")
        if protocol is SecurityProtocol.SASL_SSL
        else listener_setting(config, listener, "ssl.client.auth")
    )
    enabled: tuple[str, ...] = listener_setting(config, listener, "ssl.enabled.protocols")
    highest = listener_setting(config, listener, "ssl.protocol")
    return TlsSettings(
        listener=listener,
        keystore=StoreSettings(
            kind=listener_setting(config, listener, "ssl.keystore.type"),
            location=text("ssl.keystore.location"),
            password=text("ssl.keystore.password"),
            certificates=text("ssl.keystore.certificate.chain"),
            key=text("ssl.keystore.key"),
            key_password=text("ssl.key.password"),
        ),
        truststore=StoreSettings(
            kind=listener_setting(config, listener, "ssl.truststore.type"),
            location=text("ssl.truststore.location"),
            password=text("ssl.truststore.password"),
            certificates=text("ssl.truststore.certificates"),
        ),
        client_auth=client_auth,
        principal_mapping_rules=listener_setting(config, listener, "ssl.principal.mapping.rules"),
        protocols=tuple(name for name in enabled if highest != "TLSv1.2" or name == "TLSv1.2"),
        ciphers=tuple(
            openssl_cipher(name) for name in listener_setting(config, listener, "ssl.cipher.suites")
        ),
    )


def tls_fault(config: BrokerConfig) -> str | None:
    """What keeps a listener with TLS from starting, as far as the settings alone tell, or None."""
    for listener, protocol in protocols_of(config).items():
        if protocol.has_tls:
            fault = store_fault(tls_settings(config, listener))
            if fault is not None:
                return f"listener {listener}: {fault}"
    return None


def tls_listeners(config: BrokerConfig) -> list[str]:
    """Return the names of the listeners with TLS."""
    return [name for name, protocol in protocols_of(config).items() if protocol.has_tls]


def store_fault(settings: TlsSettings) -> str | None:
    """What is wrong with the settings of one listener, or None."""
    keystore, truststore = settings.keystore, settings.truststore
    if not keystore.is_set:
        return (
            "TLS needs a certificate; set ssl.keystore.location, or ssl.keystore.certificate.chain and "
            "ssl.keystore.key (`flintmq cert dev` makes certificates for trying it)"
        )
    inline = keystore.certificates is not None or keystore.key is not None
    if inline and keystore.location is not None:
        return "ssl.keystore.location and a certificate chain or key in the settings are both set; remove one"
    if inline and (keystore.certificates is None or keystore.key is None):
        return "ssl.keystore.certificate.chain and ssl.keystore.key are set together or not at all"
    if truststore.location is not None and truststore.certificates is not None:
        return "ssl.truststore.location and ssl.truststore.certificates are both set; remove one"
    for name, store in (("keystore", keystore), ("truststore", truststore)):
        if store.kind != "PEM" and store.location is None and store.certificates is not None:
            return f"certificates in the settings are PEM; set ssl.{name}.type=PEM"
    if settings.client_auth != "none" and not truststore.is_set:
        return (
            f"ssl.client.auth={settings.client_auth} needs the certificates to trust; set ssl.truststore.location or "
            "ssl.truststore.certificates"
        )
    if not settings.protocols:
        return "ssl.protocol=TLSv1.2 excludes all of ssl.enabled.protocols; add TLSv1.2 to it"
    if settings.ciphers and settings.protocols == ("TLSv1.3",):
        return "ssl.cipher.suites chooses suites of TLS 1.2, which ssl.enabled.protocols leaves out"
    return None
