"""Settings for TLS and SASL among the options of source and sink: Kafka's client settings after `kafka.`. Pure.

Spark shows options in plans and in its UI, and hides those whose name or value matches `spark.redaction.regex`. The
names of all secrets here do by default, but for one, which is refused unless it is a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.client.credentials.settings import SECURITY_SETTINGS, security_name
from flintmq.client.security import ClientSecurity, parse_security, security_properties
from flintmq.errors import ConfigurationError
from flintmq.settings.references import is_reference

PREFIX: Final = "kafka."
_SHOWN_BY_SPARK: Final = ("kafka.ssl.keystore.key", "kafka.ssl.key.pem")

SECURITY_OPTIONS: Final = tuple(
    (f"{PREFIX}{one.name}", one.default, one.meaning) for one in SECURITY_SETTINGS
)
"""Name, default and meaning."""


def is_security_option(name: str) -> bool:
    lowered = name.lower()
    return lowered.startswith(PREFIX) and security_name(lowered.removeprefix(PREFIX)) is not None


def parse_security_options(options: Mapping[str, str]) -> ClientSecurity:
    """Read the options for security; all others are ignored. Raise ConfigurationError without a secret in it."""
    given = {name.lower(): str(value) for name, value in options.items()}
    for name in _SHOWN_BY_SPARK:
        if name in given and not is_reference(given[name]):
            raise ConfigurationError(
                f"{name} would be shown in Spark's plans; set kafka.ssl.key.location, or refer to the key: "
                "${file:/path/client.key}"
            )
    try:
        return parse_security(security_properties(given, prefix=PREFIX))
    except ConfigurationError as error:
        raise ConfigurationError(f"in the options {PREFIX}…: {error}") from None
