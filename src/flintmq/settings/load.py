"""The settings a broker starts with: command line over environment over file over defaults (F9, B10).

    command line   --set NAME=VALUE
    environment    FLINTMQ_ and the name in capitals (FLINTMQ_LOG_RETENTION_MS); after it the short names
    file           YAML or TOML, flat (`log.retention.ms: 1`) or nested (`log: {retention: {ms: 1}}`)

Pure: the caller reads the file and the environment and passes what they hold; only references in values are read here
(`flintmq.settings.references`). Invariant: what is loaded has
passed every check, and every value knows where it came from; anything else is a ConfigurationError that names
the location and suggests the near name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flintmq.errors import ConfigurationError
from flintmq.settings.broker import BROKER_SETTINGS, BrokerConfig
from flintmq.settings.declaration import Setting
from flintmq.settings.document import SettingsFile, read_settings
from flintmq.settings.listener_overrides import broker_setting, split_override
from flintmq.settings.listeners import Listener, listeners_on, parse_listeners
from flintmq.settings.names import (
    ALIASES,
    HOSTNAME,
    PORTS,
    REFUSED,
    UNAVAILABLE,
    hint,
    is_known,
    name_of_bare_variable,
    name_of_variable,
)
from flintmq.settings.references import has_reference, resolve_references
from flintmq.settings.resolve import BrokerValues, overlay, parse_broker_config
from flintmq.settings.rest import REST_LISTENER


class SettingOrigin(Enum):
    COMMAND_LINE = "command line"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """One text as somebody wrote it. `location` is what to call it in a message."""

    name: str
    text: str
    origin: SettingOrigin
    location: str


@dataclass(frozen=True, slots=True)
class LoadedValue:
    """One setting as `flintmq config` lists it."""

    setting: Setting
    value: Any
    origin: SettingOrigin
    location: str
    reference: str | None = None
    """The text, if it holds references: what is shown in place of the value."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    broker: BrokerConfig
    static: Mapping[str, str]
    """The texts given, by setting name and without human units; what is at its default is not here."""
    values: tuple[LoadedValue, ...]
    """Every setting, in the order declared."""
    warnings: tuple[str, ...]

    @property
    def layers(self) -> BrokerValues:
        """The static layer, to be joined with dynamic ones."""
        return BrokerValues(static=self.static)


def load(
    *,
    command_line: Sequence[tuple[str, str]] = (),
    environ: Mapping[str, str] | None = None,
    file: SettingsFile | None = None,
) -> LoadedSettings:
    environ = environ or {}
    layers = (
        [
            GivenSetting(name, text, SettingOrigin.FILE, f"{name} in {file.name}")
            for name, text in read_settings(file)
        ]
        if file
        else [],
        _bare_variables(environ),
        _prefixed_variables(environ),
        [
            GivenSetting(name, text, SettingOrigin.COMMAND_LINE, f"{name} on the command line")
            for name, text in command_line
        ],
    )
    static: dict[str, str] = {}
    locations: dict[str, GivenSetting] = {}
    warnings: list[str] = []
    listeners: tuple[Listener, ...] = BROKER_SETTINGS["listeners"].default
    for layer in layers:
        texts = _settle(layer, listeners, locations, warnings)
        if "listeners" in texts:
            listeners = parse_listeners(resolve_references(texts["listeners"], "listeners"))
        static = overlay(static, texts)
    broker = parse_broker_config(static)
    values = [
        _loaded(declared, getattr(broker, declared.attribute), locations if declared.name in static else {})
        for declared in BROKER_SETTINGS.values()
    ]
    values += _overrides(broker, static, locations)
    return LoadedSettings(broker, static, tuple(values), tuple(warnings))


def _overrides(
    broker: BrokerConfig, static: Mapping[str, str], locations: Mapping[str, GivenSetting]
) -> list[LoadedValue]:
    """The settings of single listeners, each of which must name one that there is."""
    values = []
    names = [listener.name for listener in broker.listeners]
    for name in static:
        split, declared = split_override(name), broker_setting(name)
        if split is None or declared is None:
            continue
        if split[0] not in names and split[0] != REST_LISTENER:
            raise ConfigurationError(
                f"{locations[name].location}: there is no listener {split[0]}; `listeners` has {', '.join(names)}"
            )
        values.append(_loaded(declared, broker.listener_overrides[split], locations))
    return values


def _prefixed_variables(environ: Mapping[str, str]) -> list[GivenSetting]:
    named = [(name_of_variable(variable), variable) for variable in sorted(environ)]
    return [_variable(name, variable, environ) for name, variable in named if name is not None]


def _bare_variables(environ: Mapping[str, str]) -> list[GivenSetting]:
    named = [(name_of_bare_variable(variable), variable) for variable in sorted(environ)]
    return [_variable(name, variable, environ) for name, variable in named if name is not None]


def _variable(name: str, variable: str, environ: Mapping[str, str]) -> GivenSetting:
    return GivenSetting(
        name, environ[variable], SettingOrigin.ENVIRONMENT, f"environment variable {variable}"
    )


def _settle(
    layer: Sequence[GivenSetting],
    below: tuple[Listener, ...],
    locations: dict[str, GivenSetting],
    warnings: list[str],
) -> dict[str, str]:
    """One layer's texts by setting name, checked. `below` are the listeners of the layers under it."""
    texts: dict[str, str] = {}
    addresses: dict[str, GivenSetting] = {}
    for given in layer:
        if given.name in REFUSED:
            raise ConfigurationError(f"{given.location} is refused: {REFUSED[given.name]}")
        if not is_known(given.name):
            raise ConfigurationError(f"unknown setting {given.location}: {hint(given.name)}")
        if given.name in UNAVAILABLE:
            _warn_unavailable(given, warnings)
        elif given.name in (PORTS, HOSTNAME):
            addresses[given.name] = given
        else:
            declared = broker_setting(ALIASES.get(given.name, given.name))
            assert declared is not None
            if declared.name in texts and given.origin is not SettingOrigin.COMMAND_LINE:
                raise ConfigurationError(
                    f"{given.location} and {locations[declared.name].location} set the same thing"
                )
            texts[declared.name] = _checked(declared, given)
            locations[declared.name] = given
    if addresses:
        given = next(iter(addresses.values()))
        if "listeners" in texts:
            raise ConfigurationError(
                f"{given.location} and {locations['listeners'].location} both set the addresses"
            )
        texts["listeners"] = _addresses(addresses, below)
        locations["listeners"] = given
    return texts


def _checked(declared: Setting, given: GivenSetting) -> str:
    try:
        return declared.plain_unresolved(given.text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{given.location}: {error}") from None


def _warn_unavailable(given: GivenSetting, warnings: list[str]) -> None:
    # Asking for the absence of what is absent deserves no warning.
    if given.text.strip().lower() not in ("", "false", "0"):
        feature = UNAVAILABLE[given.name]
        warnings.append(f"{given.location}: {feature} not available in this version, ignored")


def _addresses(given: Mapping[str, GivenSetting], below: Sequence[Listener]) -> str:
    """`broker_ports` and `kafka_hostname` over the listeners below: each replaces its own part."""
    name, *others = dict.fromkeys(listener.name for listener in below)
    hosts = list(dict.fromkeys(listener.host for listener in below))
    ports = list(dict.fromkeys(listener.port for listener in below))
    if others:
        location = next(iter(given.values())).location
        raise ConfigurationError(f"{location}: there are several named listeners, set `listeners` instead")
    if HOSTNAME in given:
        hosts = [given[HOSTNAME].text.strip().strip("[]")]
    if PORTS in given:
        parts = given[PORTS].text.strip().strip("[]").split(",")
        if not all(part.strip().isdecimal() and int(part) <= 65535 for part in parts):
            raise ConfigurationError(f"{given[PORTS].location}: expected ports such as 9092,9094")
        ports = [int(part) for part in parts]
    text = ",".join(str(listener) for listener in listeners_on(hosts, ports, name=name))
    try:
        BROKER_SETTINGS["listeners"].parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{next(iter(given.values())).location}: {error}") from None
    return text


def _loaded(declared: Setting, value: Any, locations: Mapping[str, GivenSetting]) -> LoadedValue:
    given = locations.get(declared.name)
    if given is None:
        return LoadedValue(declared, value, SettingOrigin.DEFAULT, "default")
    reference = given.text if has_reference(given.text) else None
    return LoadedValue(declared, value, given.origin, given.location, reference)
