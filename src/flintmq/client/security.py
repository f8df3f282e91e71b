"""How a client connects: Kafka's client settings for security, from properties and the environment. Pure.

    security.protocol  sasl.mechanism  sasl.username  sasl.password        as librdkafka and kafka-python name them
    sasl.jaas.config                                                        as Java clients have it

Secrets are never part of a text that this module makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.client.sasl import MECHANISMS
from flintmq.errors import ConfigurationError
from flintmq.settings.jaas import jaas_login
from flintmq.settings.properties import parse_properties as parse_properties

PROTOCOLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT")
SETTINGS: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
)
_ALIASES: Final = {"sasl.mechanisms": "sasl.mechanism"}
ENVIRONMENT: Final = {
    "FLINTMQ_" + name.replace(".", "_").upper(): name for name in SETTINGS if name != "sasl.jaas.config"
}
"""Environment variables and the settings that they give. FLINTMQ_SASL_JAAS_CONFIG is the broker's."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


PLAINTEXT: Final = ClientSecurity()


def parse_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Read the settings for security; all others are ignored. ConfigurationError says what is missing."""
    given = {_ALIASES.get(name, name): value for name, value in properties.items()}
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"security.protocol={protocol} is not available; use one of {', '.join(PROTOCOLS)}"
        )
    if not protocol.startswith("SASL_"):
        return ClientSecurity(protocol)
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise ConfigurationError(
            f"sasl.mechanism={mechanism} is not available; use one of {', '.join(MECHANISMS)}"
            if mechanism
            else f"security.protocol={protocol} needs sasl.mechanism, one of {', '.join(MECHANISMS)}"
        )
    username, password = _login(given)
    if not username or not password:
        raise ConfigurationError(f"sasl.mechanism={mechanism} needs sasl.username and sasl.password")
    return ClientSecurity(protocol, mechanism, username, password)


def _login(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    username, password = given.get("sasl.username"), given.get("sasl.password")
    jaas = given.get("sasl.jaas.config")
    if jaas and (username is None or password is None):
        try:
            from_jaas = jaas_login(jaas)
        except ValueError as error:
            raise ConfigurationError(f"sasl.jaas.config: {error}") from None
        username, password = username or from_jaas[0], password or from_jaas[1]
    return username, password


def environment_properties(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[variable] for variable, name in ENVIRONMENT.items() if environ.get(variable)}
