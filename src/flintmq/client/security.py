"""How a client connects: Kafka's client settings for security, from properties and the environment. Pure.

    security = parse_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", …})

A `ClientSecurity` can be pickled and travels to workers. Its values may be `${env:NAME}` or `${file:PATH}`: they stay
so, and are resolved where a connection is made. Invariant: no secret is part of a text that this
module makes, `repr` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.client.credentials.settings import ENVIRONMENT, security_name
from flintmq.client.sasl import MECHANISMS, OAUTHBEARER
from flintmq.errors import ConfigurationError
from flintmq.settings.jaas import parse_jaas
from flintmq.settings.properties import parse_properties as parse_properties
from flintmq.settings.references import is_reference, resolve_references

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_STORE_TYPES: Final = {
    "ssl.truststore": "openssl pkcs12 -in FILE.p12 -nokeys -out ca.pem, and set ssl.ca.location=ca.pem",
    "ssl.keystore": "openssl pkcs12 -in FILE.p12 -out client.pem, and set ssl.certificate.location=client.pem",
}


@dataclass(frozen=True, slots=True)
class TlsTrust:
    """What a client trusts, and what it shows of itself."""

    ca_location: str = ""
    ca_pem: str = field(default="", repr=False)
    certificate_location: str = ""
    key_location: str = ""
    certificate_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    checks_host: bool = True


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """Where the token of OAUTHBEARER comes from: itself, or an endpoint."""

    token: str = field(default="", repr=False)
    endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    ca_location: str = ""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    is_delegation_token: bool = False
    """Username and password are the id and the HMAC of a delegation token."""
    bearer: BearerSettings = BearerSettings()
    tls: TlsTrust = TlsTrust()

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


PLAINTEXT: Final = ClientSecurity()


def parse_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Read the settings for security; all others are ignored. ConfigurationError says what is missing."""
    given = canonical(properties)
    protocol = _resolved(given, "security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"security.protocol={protocol} is not available; use one of {', '.join(PROTOCOLS)}"
        )
    security = ClientSecurity(protocol, tls=_tls(given) if protocol.endswith("SSL") else TlsTrust())
    return _with_login(security, given) if security.has_sasl else security


def canonical(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for security by their own names, without empty ones that mean nothing."""
    found = {}
    for name, value in properties.items():
        own = security_name(name)
        if own is not None and (value or own == "ssl.endpoint.identification.algorithm"):
            found[own] = value
    return found


def _resolved(given: Mapping[str, str], name: str, default: str) -> str:
    """Return a value that is needed to know which others are."""
    return resolve_references(given.get(name, default), name)


def _with_login(security: ClientSecurity, given: Mapping[str, str]) -> ClientSecurity:
    mechanism = _resolved(given, "sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise ConfigurationError(
            f"sasl.mechanism={mechanism} is not available; use one of {', '.join(MECHANISMS)}"
            if mechanism
            else f"security.protocol={security.protocol} needs sasl.mechanism, one of {', '.join(MECHANISMS)}"
        )
    login = _jaas_options(given)
    if mechanism == OAUTHBEARER:
        bearer = _bearer(given, login)
        return ClientSecurity(security.protocol, mechanism, bearer=bearer, tls=security.tls)
    username = given.get("sasl.username") or login.get("username")
    password = given.get("sasl.password") or login.get("password")
    if not username or not password:
        raise ConfigurationError(f"sasl.mechanism={mechanism} needs sasl.username and sasl.password")
    is_token = login.get("tokenauth", "").lower() == "true"
    if is_token and mechanism == "PLAIN":
        raise ConfigurationError(
            "tokenauth=true is for SCRAM: set sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    return ClientSecurity(security.protocol, mechanism, username, password, is_token, tls=security.tls)


def _jaas_options(given: Mapping[str, str]) -> Mapping[str, str]:
    text = given.get("sasl.jaas.config")
    if text is None:
        return {}
    try:
        # A reference within the text stays one, so that what it stands for is resolved where a connection is made.
        whole = resolve_references(text, "sasl.jaas.config") if is_reference(text) else text
        return parse_jaas(whole)[0].options
    except ValueError as error:
        raise ConfigurationError(f"sasl.jaas.config: {error}") from None


def _bearer(given: Mapping[str, str], login: Mapping[str, str]) -> BearerSettings:
    prefix = "sasl.oauthbearer."
    bearer = BearerSettings(
        token=given.get(f"{prefix}token", ""),
        endpoint_url=given.get(f"{prefix}token.endpoint.url", ""),
        client_id=given.get(f"{prefix}client.id") or login.get("clientId", ""),
        client_secret=given.get(f"{prefix}client.secret") or login.get("clientSecret", ""),
        scope=given.get(f"{prefix}scope") or login.get("scope", ""),
        ca_location=given.get("https.ca.location", ""),
    )
    if bearer.token:
        return bearer
    if not bearer.endpoint_url:
        raise ConfigurationError(
            f"sasl.mechanism={OAUTHBEARER} needs {prefix}token (such as ${{file:/run/token}}), or "
            f"{prefix}token.endpoint.url with {prefix}client.id and {prefix}client.secret"
        )
    is_file = bearer.endpoint_url.startswith("file:")
    if not is_file and not (bearer.client_id and bearer.client_secret):
        raise ConfigurationError(
            f"{prefix}token.endpoint.url needs {prefix}client.id and {prefix}client.secret"
        )
    return bearer


def _tls(given: Mapping[str, str]) -> TlsTrust:
    for store, advice in _STORE_TYPES.items():
        kind = given.get(f"{store}.type", "PEM").upper()
        # Java's default is JKS, so a file without its type may be anything; it is read as PEM.
        if kind != "PEM":
            raise ConfigurationError(f"{store}.type={kind} cannot be read by a client; convert it: {advice}")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise ConfigurationError(f"ssl.endpoint.identification.algorithm={algorithm}: expected https or none")
    keystore = given.get("ssl.keystore.location", "")
    tls = TlsTrust(
        ca_location=given.get("ssl.ca.location") or given.get("ssl.truststore.location", ""),
        ca_pem=given.get("ssl.truststore.certificates", ""),
        certificate_location=given.get("ssl.certificate.location") or keystore,
        key_location=given.get("ssl.key.location", ""),
        certificate_pem=given.get("ssl.keystore.certificate.chain", ""),
        key_pem=given.get("ssl.keystore.key", ""),
        key_password=given.get("ssl.key.password", ""),
        checks_host=algorithm == "https",
    )
    if tls.key_location and not tls.certificate_location:
        raise ConfigurationError(
            "ssl.key.location needs ssl.certificate.location: the certificate of the key"
        )
    if bool(tls.key_pem) != bool(tls.certificate_pem):
        raise ConfigurationError("ssl.keystore.key and ssl.keystore.certificate.chain go together; set both")
    return tls


def security_properties(properties: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
    """Return those of the properties that are settings for security, without the prefix of their names."""
    found = {
        name.removeprefix(prefix): str(value) for name, value in properties.items() if name.startswith(prefix)
    }
    return {name: value for name, value in found.items() if security_name(name) is not None}


def environment_properties(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[variable] for variable, name in ENVIRONMENT.items() if environ.get(variable)}
