"""Every name under which a broker setting may be given, and what to say of a name that is none.

Besides Kafka's names: the short ones of `settings.yaml` (B10), which in the environment are written in
capitals and may do without the prefix. Names of features that this version does not have are known, so that
an existing file still works; they are ignored with a warning. This module must not know values.
"""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.settings.broker import BROKER_SETTINGS
from flintmq.settings.declaration import nearest
from flintmq.settings.listener_overrides import broker_setting, override_of_variable
from flintmq.settings.topic import TOPIC_SETTINGS

PORTS = "broker_ports"
HOSTNAME = "kafka_hostname"

SHORT_NAMES: Mapping[str, str] = {
    "retention": "log.retention.ms",
    "record_storage_path": "log.dirs",
    "kafka_cfg_num_partitions": "num.partitions",
    "log_level": "flint.log.level",
    "rest_port": "flint.rest.port",
    "rest_host": "flint.rest.host",
    "profile": "flint.profile",
    "enable_consumer_groups": "flint.consumer.groups.enable",
    PORTS: "listeners",
    HOSTNAME: "listeners",
}
"""The short names that have an effect, and the setting each one gives."""

UNAVAILABLE: Mapping[str, str] = {
    "max_memory": "memory-first topics",
    "purge_on_fetch": "purging on fetch",
    "plugin_paths": "plugins",
}
"""Short names whose feature is not there yet, and the feature."""

REFUSED: Mapping[str, str] = dict.fromkeys(
    ("inter.broker.listener.name", "security.inter.broker.protocol"),
    "this version has one broker, which makes no connections to others; remove the setting",
)
"""Kafka's settings that would have no effect here, and the reason."""

_ENVIRONMENT_PREFIX = "FLINTMQ_"

# Not settings: read by the command line, or put there by Kubernetes for a service that is called flintmq.
_RESERVED = (
    "FLINTMQ_CONFIG",
    "FLINTMQ_SETTINGS",
    "FLINTMQ_BOOTSTRAP_SERVERS",
    "FLINTMQ_PORT",
    "FLINTMQ_COMPILE",
    "FLINTMQ_COMPILED",
    "FLINTMQ_COMMAND_CONFIG",
    "FLINTMQ_SECURITY_PROTOCOL",
    "FLINTMQ_SASL_MECHANISM",
    "FLINTMQ_SASL_USERNAME",
    "FLINTMQ_SASL_PASSWORD",
    "FLINTMQ_SASL_OAUTHBEARER_TOKEN",
    "FLINTMQ_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL",
    "FLINTMQ_SASL_OAUTHBEARER_CLIENT_ID",
    "FLINTMQ_SASL_OAUTHBEARER_CLIENT_SECRET",
    "FLINTMQ_SASL_OAUTHBEARER_SCOPE",
    "FLINTMQ_HTTPS_CA_LOCATION",
    "FLINTMQ_SSL_CA_LOCATION",
    "FLINTMQ_SSL_CERTIFICATE_LOCATION",
    "FLINTMQ_SSL_KEY_LOCATION",
    "FLINTMQ_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
)
_RESERVED_PREFIXES = ("FLINTMQ_SERVICE_", "FLINTMQ_PORT_")


def _aliases() -> dict[str, str]:
    declared = {alias: item.name for item in BROKER_SETTINGS.values() for alias in item.aliases}
    return {**declared, **SHORT_NAMES}


ALIASES: Mapping[str, str] = _aliases()
"""Every other name, and the setting it gives."""

_KNOWN = (*BROKER_SETTINGS, *ALIASES, *UNAVAILABLE)
_PREFIXED = {_ENVIRONMENT_PREFIX + name.replace(".", "_").upper(): name for name in _KNOWN}
_BARE = {name.upper(): name for name in (*SHORT_NAMES, *UNAVAILABLE)}


def is_known(name: str) -> bool:
    return broker_setting(name) is not None or name in ALIASES or name in UNAVAILABLE


def name_of_variable(variable: str) -> str | None:
    """The name that a prefixed environment variable gives; None if it is not meant for us."""
    if not variable.startswith(_ENVIRONMENT_PREFIX):
        return None
    if variable in _RESERVED or variable.startswith(_RESERVED_PREFIXES):
        return None
    return _PREFIXED.get(variable) or override_of_variable(variable) or variable


def name_of_bare_variable(variable: str) -> str | None:
    """The short name that an environment variable without prefix gives, or None."""
    return _BARE.get(variable)


def hint(name: str) -> str:
    """What to add to "unknown setting": the near name, or how to say a topic's setting for all topics."""
    if name in REFUSED:
        return REFUSED[name]
    if name.startswith("listener.name."):
        return "only settings of TLS and SASL can be set for one listener: listener.name.NAME.ssl.keystore.location"
    topic = TOPIC_SETTINGS.get(name)
    if topic and topic.synonyms:
        return f"it is a setting of topics; for all topics set {topic.synonyms[0].name}"
    guess = nearest(name, _PREFIXED if name.startswith(_ENVIRONMENT_PREFIX) else _KNOWN)
    return f"did you mean {guess}?" if guess else "`flintmq config` lists all of them"
