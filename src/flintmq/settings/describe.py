"""The answers of DescribeConfigs: every setting with its value, where it comes from, and its synonyms.

The order of synonyms is Kafka's: layer by layer from the strongest, in each layer name by name from the
strongest, and nothing before the first entry of the name asked for. The value of a secret is never shown, and a value
with references is shown as it was written. This module must not know the wire.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from flintmq.settings.broker import BROKER_SETTINGS, BrokerConfig
from flintmq.settings.declaration import Setting, UpdateMode
from flintmq.settings.kinds import SettingKind
from flintmq.settings.listener_overrides import broker_setting, split_override
from flintmq.settings.references import has_reference
from flintmq.settings.resolve import BrokerValues, broker_synonyms, parse_topic_config
from flintmq.settings.topic import TOPIC_SETTINGS


class ConfigSource(IntEnum):
    """Kafka's numbers for where a value comes from."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    kind: SettingKind
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(
    overrides: Mapping[str, str],
    broker: BrokerValues,
    names: Collection[str] | None = None,
    *,
    config: BrokerConfig | None = None,
) -> list[ConfigEntry]:
    """All settings of a topic, or those in `names`. `config` is what `broker` stands for, where that is at hand."""
    topic = parse_topic_config(overrides, config or broker.config())
    references = _references(broker)
    entries = []
    for declared in _selected(TOPIC_SETTINGS, names):
        value = declared.format(getattr(topic, declared.attribute))
        if declared.name not in overrides and references:
            value = next((references[one.name] for one in declared.synonyms if one.name in references), value)
        synonyms: list[ConfigSynonym] = []
        if declared.name in overrides:
            synonyms.append(_synonym(declared, declared.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        if declared.synonyms:
            synonyms += _broker_synonyms(declared.synonyms[0].name, broker)
        entries.append(_entry(declared, value, synonyms, read_only=False))
    return entries


def describe_broker(
    broker: BrokerValues, names: Collection[str] | None = None, *, config: BrokerConfig | None = None
) -> list[ConfigEntry]:
    """All settings of one broker, or those in `names`. `config` is what `broker` stands for, if at hand."""
    config = config or broker.config()
    references = _references(broker)
    entries = [
        _entry(
            declared,
            references.get(declared.name) or declared.format(getattr(config, declared.attribute)),
            _broker_synonyms(declared.name, broker),
            read_only=declared.dynamic is UpdateMode.READ_ONLY,
        )
        for declared in _selected(BROKER_SETTINGS, names)
    ]
    return entries + [
        _entry(
            declared,
            references.get(name) or declared.format(config.listener_overrides.get(split)),
            _override_synonyms(declared, broker),
            read_only=declared.dynamic is UpdateMode.READ_ONLY,
        )
        for name in broker.merged()
        if (split := split_override(name)) is not None
        and (declared := broker_setting(name)) is not None
        and (not names or name in names)
    ]


def _references(broker: BrokerValues) -> dict[str, str]:
    """The values in force that hold references, by their names."""
    return {name: text for name, text in broker.merged().items() if has_reference(text)}


def _override_synonyms(declared: Setting, broker: BrokerValues) -> list[ConfigSynonym]:
    """The layers of a listener's own setting, then those of the setting for all listeners."""
    split = split_override(declared.name)
    assert split is not None
    layers = (
        (broker.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    found = [
        _synonym(declared, declared.name, layer[declared.name], source)
        for layer, source in layers
        if declared.name in layer
    ]
    return found + (_broker_synonyms(split[1], broker) if split[1] in BROKER_SETTINGS else [])


def describe_broker_default(broker: BrokerValues, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The dynamic settings of the whole cluster: only what has been set, as Kafka answers for broker ""."""
    entries = []
    for declared in _selected(BROKER_SETTINGS, names):
        if declared.name in broker.dynamic_default:
            synonyms = [
                synonym
                for synonym in _broker_synonyms(declared.name, broker)
                if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            ]
            value = broker.dynamic_default[declared.name]
            entries.append(
                _entry(declared, value, synonyms, read_only=declared.dynamic is UpdateMode.READ_ONLY)
            )
    return entries


def _selected(settings: Mapping[str, Setting], names: Collection[str] | None) -> list[Setting]:
    return [declared for declared in settings.values() if not names or declared.name in names]


def _entry(
    declared: Setting, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=declared.name,
        value=None if declared.sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=declared.sensitive,
        kind=declared.kind,
        doc=declared.doc,
        synonyms=tuple(synonyms),
    )


def _synonym(declared: Setting, name: str, value: str | None, source: ConfigSource) -> ConfigSynonym:
    return ConfigSynonym(name, None if declared.sensitive else value, source)


def _broker_synonyms(name: str, broker: BrokerValues) -> list[ConfigSynonym]:
    alternatives = [BROKER_SETTINGS[alternative] for alternative in broker_synonyms(name)]
    layers = (
        (broker.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    found = [
        _synonym(declared, declared.name, layer[declared.name], source)
        for layer, source in layers
        for declared in alternatives
        if declared.name in layer
    ]
    found += [
        _synonym(declared, declared.name, declared.format(declared.default), ConfigSource.DEFAULT_CONFIG)
        for declared in alternatives
        if declared.default is not None
    ]
    # Kafka leaves out what stands before the name itself: a topic whose retention comes from
    # log.retention.hours is described as having the default.
    start = next((position for position, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[start:]
