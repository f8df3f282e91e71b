"""Kafka's client settings for security, as a list: names, meanings, and which of them are secrets. Pure.

Names are those of librdkafka and of Java clients, which differ for TLS. Invariant: this is the only list; the parser,
the environment, the options of Spark's source and sink and the manuals come from it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class SecuritySetting(NamedTuple):
    name: str
    meaning: str
    default: str = ""
    is_secret: bool = False
    """Its value is never shown."""
    in_environment: bool = True
    """False where the variable of that name is the broker's."""


SECURITY_SETTINGS: Final = (
    SecuritySetting("security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", "PLAINTEXT"),
    SecuritySetting("sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
    SecuritySetting("sasl.username", "the user of PLAIN or SCRAM"),
    SecuritySetting("sasl.password", "the password of PLAIN or SCRAM", is_secret=True),
    SecuritySetting(
        "sasl.jaas.config",
        "the login as Java clients have it: username and password, tokenauth, or clientId, clientSecret and scope",
        is_secret=True,
        in_environment=False,
    ),
    SecuritySetting("sasl.oauthbearer.token", "the token of OAUTHBEARER itself", is_secret=True),
    SecuritySetting(
        "sasl.oauthbearer.token.endpoint.url",
        "where the token comes from: an OIDC token endpoint (https), or a file (file:///…)",
    ),
    SecuritySetting("sasl.oauthbearer.client.id", "the client's name at the token endpoint"),
    SecuritySetting(
        "sasl.oauthbearer.client.secret", "the client's secret at the token endpoint", is_secret=True
    ),
    SecuritySetting("sasl.oauthbearer.scope", "the scope to ask the token endpoint for"),
    SecuritySetting(
        "https.ca.location", "CA certificates of the token endpoint, PEM; the system's otherwise"
    ),
    SecuritySetting("ssl.ca.location", "CA certificates to trust, PEM; the system's otherwise"),
    SecuritySetting(
        "ssl.certificate.location", "the client's certificate and its chain, PEM, for mutual TLS"
    ),
    SecuritySetting(
        "ssl.key.location", "the client's private key, PEM; the file of the certificate otherwise"
    ),
    SecuritySetting(
        "ssl.key.password", "the password of an encrypted private key", is_secret=True, in_environment=False
    ),
    SecuritySetting(
        "ssl.endpoint.identification.algorithm",
        "https: the certificate must be for the host that is connected to; none: for any host",
        "https",
    ),
    SecuritySetting(
        "ssl.truststore.type", "PEM: ssl.truststore.location is a PEM file", "PEM", in_environment=False
    ),
    SecuritySetting("ssl.truststore.location", "the same as ssl.ca.location", in_environment=False),
    SecuritySetting("ssl.truststore.certificates", "CA certificates themselves, PEM", in_environment=False),
    SecuritySetting(
        "ssl.keystore.type", "PEM: ssl.keystore.location is a PEM file", "PEM", in_environment=False
    ),
    SecuritySetting(
        "ssl.keystore.location", "the client's private key and chain in one PEM file", in_environment=False
    ),
    SecuritySetting(
        "ssl.keystore.key", "the client's private key itself, PEM", is_secret=True, in_environment=False
    ),
    SecuritySetting(
        "ssl.keystore.certificate.chain", "the client's certificate and its chain, PEM", in_environment=False
    ),
)
SECURITY_NAMES: Final = frozenset(one.name for one in SECURITY_SETTINGS)
SECRET_NAMES: Final = frozenset(one.name for one in SECURITY_SETTINGS if one.is_secret)
ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Other names of the same settings, as librdkafka or newer Java clients have them."""

ENVIRONMENT: Final = {
    "FLINTMQ_" + one.name.replace(".", "_").upper(): one.name
    for one in SECURITY_SETTINGS
    if one.in_environment
}
"""Environment variables and the settings that they give."""


def security_name(name: str) -> str | None:
    """Return the setting's own name for a name or another name of it; None if it is not one for security."""
    found = ALIASES.get(name, name)
    return found if found in SECURITY_NAMES else None
