"""From texts to configurations: which layer wins, and what a topic takes from its broker.

Layers of a broker's values, the first wins: dynamic for this broker, dynamic for the cluster, static (what
the process was started with), default. Invariant: a configuration made here has passed every check.
This module must not know where the texts were kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.settings.broker import BROKER_SETTINGS, BrokerConfig
from flintmq.settings.declaration import Setting, nearest
from flintmq.settings.listener_overrides import broker_setting, split_override
from flintmq.settings.references import redact
from flintmq.settings.topic import TOPIC_SETTINGS, TopicConfig


def _alternatives() -> dict[str, tuple[str, ...]]:
    """Broker settings that say the same thing in other units: `log.retention.ms`, `.minutes`, `.hours`.

    A later synonym in the same unit (`log.flush.scheduler.interval.ms`) is only a fallback: setting it does
    not overrule the first.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for topic_setting in TOPIC_SETTINGS.values():
        names = tuple(synonym.name for synonym in topic_setting.synonyms)
        for position, synonym in enumerate(topic_setting.synonyms):
            groups[synonym.name] = names if position == 0 or synonym.factor != 1 else (synonym.name,)
    return groups


_ALTERNATIVES = _alternatives()


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The broker settings that can give this one its value, the strongest first; itself among them."""
    return _ALTERNATIVES.get(name, (name,))


def overlay(lower: Mapping[str, str], upper: Mapping[str, str]) -> dict[str, str]:
    """`upper` over `lower`. A value above removes its alternatives below, else hours could never beat ms."""
    merged = dict(lower)
    for name in upper:
        for alternative in broker_synonyms(name):
            merged.pop(alternative, None)
    merged.update(upper)
    return merged


def _unknown(name: str, settings: Mapping[str, Setting], what: str) -> ConfigurationError:
    guess = nearest(name, settings)
    return ConfigurationError(
        f"Unknown {what} config name: {name}" + (f" (did you mean {guess}?)" if guess else "")
    )


def parse_broker_config(values: Mapping[str, str]) -> BrokerConfig:
    """One merged mapping of texts as a configuration; ConfigurationError if it cannot be."""
    fields: dict[str, Any] = {}
    overrides: dict[tuple[str, str], Any] = {}
    for name, text in values.items():
        declared = broker_setting(name)
        if declared is None:
            raise _unknown(name, BROKER_SETTINGS, "broker")
        split = split_override(name)
        if split is None:
            fields[declared.attribute] = declared.resolve(text)
        else:
            overrides[split] = declared.resolve(text)
    config = BrokerConfig(**fields, listener_overrides=overrides)
    fault = config.fault()
    if fault:
        raise ConfigurationError(redact(fault, values))
    return config


@dataclass(frozen=True, slots=True)
class BrokerValues:
    """What a broker has been told, layer by layer, as texts by setting name."""

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    """The dynamic settings of the whole cluster (the broker resource named "")."""
    dynamic: Mapping[str, str] = field(default_factory=dict)
    """The dynamic settings of this broker alone."""

    def merged(self) -> dict[str, str]:
        return overlay(overlay(self.static, self.dynamic_default), self.dynamic)

    def config(self) -> BrokerConfig:
        return parse_broker_config(self.merged())


def topic_default(declared: Setting, broker: BrokerConfig) -> Any:
    """The value of a topic setting that the topic does not set: from the first synonym that has one."""
    for synonym in declared.synonyms:
        value = getattr(broker, BROKER_SETTINGS[synonym.name].attribute)
        if value is not None:
            if synonym.factor == 1:
                return value
            return value * synonym.factor if value >= 0 else -1
    return declared.default


def parse_topic_config(overrides: Mapping[str, str | None], broker: BrokerConfig) -> TopicConfig:
    """A topic's own settings over its broker's defaults; RequestError(INVALID_CONFIG) if they cannot be."""
    empty = [name for name, text in overrides.items() if text is None]
    if empty:
        raise RequestError(
            ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(empty)
        )
    fields: dict[str, Any] = {
        declared.attribute: topic_default(declared, broker) for declared in TOPIC_SETTINGS.values()
    }
    try:
        for declared, text in _declared(overrides):
            fields[declared.attribute] = declared.parse(text)
    except ConfigurationError as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
    config = TopicConfig(**fields)
    fault = config.fault()
    if fault:
        raise RequestError(ErrorCode.INVALID_CONFIG, fault)
    return config


def _declared(overrides: Mapping[str, str | None]) -> Iterable[tuple[Setting, str]]:
    for name, text in overrides.items():
        declared = TOPIC_SETTINGS.get(name)
        if declared is None:
            raise _unknown(name, TOPIC_SETTINGS, "topic")
        if text is not None:
            yield declared, text
