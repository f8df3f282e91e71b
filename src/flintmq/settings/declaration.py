"""The declaration of one setting, and its place as a field of a configuration class.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TopicConfig:
        segment_bytes: int = setting("segment.bytes", SettingKind.INT, 1 << 30, doc="…", check=at_least(14))

The class is what the code reads (typed attributes), `settings_of(TopicConfig)` is what the parser, `--help`,
`flintmq config`, DescribeConfigs and the documentation read: there is no second list.
This module must not know any particular setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from flintmq.errors import ConfigurationError
from flintmq.settings.kinds import SettingKind, Unit, ValueCheck, plain_number, read_value, write_value
from flintmq.settings.references import has_reference, resolve_references


class UpdateMode(Enum):
    """Whether a broker setting can be changed while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class BrokerSynonym:
    """A broker setting that gives a topic setting its default, `factor` converting hours or minutes to ms."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: SettingKind
    default: Any
    """None where the setting may be left unset."""
    doc: str
    check: ValueCheck | None = None
    unit: Unit = Unit.NONE
    dynamic: UpdateMode = UpdateMode.READ_ONLY
    synonyms: tuple[BrokerSynonym, ...] = ()
    """Of a topic setting: the broker settings its default comes from, the first that is set."""
    aliases: tuple[str, ...] = ()
    """Other names under which it may be given."""
    per_listener: bool = False
    """Whether `listener.name.NAME.` before its name sets it for one listener."""
    read: Callable[[str], object] | None = None
    """Reads the text where the kind alone does not say how; ValueError says what was expected."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """The value of a secret is never told."""
        return self.kind is SettingKind.PASSWORD

    @property
    def environment_name(self) -> str:
        return "FLINTMQ_" + self.attribute.upper()

    def parse(self, text: str) -> Any:
        """Read and check a text as Kafka would accept it on the wire."""
        try:
            value = self.read(text) if self.read else read_value(self.kind, text)
        except ValueError as error:
            raise self._invalid(text, str(error)) from None
        if self.check and not self.check.accepts(value):
            raise self._invalid(text, f"must be {self.check.words}")
        return value

    def resolve(self, text: str) -> Any:
        """Read and check a text of a broker setting, whose references are resolved first and never shown.

        Not for topics: whoever may alter a topic must not make the broker read its files.
        """
        if not has_reference(text):
            return self.parse(text)
        resolved = plain_number(self.unit, resolve_references(text, self.name))
        try:
            return self.parse(resolved)
        except ConfigurationError:
            expected = (
                f"it must be {self.check.words}" if self.check else "it does not have the form expected"
            )
        # ORDER: outside of the handler, so that the error above, which quotes the value, is not chained.
        raise self._invalid(text, f"what it refers to cannot be used, {expected}")

    def _invalid(self, text: str, reason: str) -> ConfigurationError:
        shown = "[hidden]" if self.sensitive else text
        return ConfigurationError(f"Invalid value {shown} for configuration {self.name}: {reason}")

    def plain(self, text: str) -> str:
        """The same value without human units (`1h` → `3600000`), checked."""
        text = plain_number(self.unit, text)
        self.parse(text)
        return text.strip()

    def plain_unresolved(self, text: str) -> str:
        """The same for a broker setting, whose references are checked and stay as they are."""
        if not has_reference(text):
            return self.plain(text)
        self.resolve(text)
        return text.strip()

    def format(self, value: object) -> str | None:
        return None if value is None else write_value(self.kind, value)


def setting(
    name: str,
    kind: SettingKind,
    default: Any,
    *,
    doc: str,
    check: ValueCheck | None = None,
    unit: Unit | None = None,
    dynamic: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[BrokerSynonym, ...] = (),
    aliases: tuple[str, ...] = (),
    per_listener: bool = False,
    read: Callable[[str], object] | None = None,
) -> Any:
    """A dataclass field that carries its declaration. Without a `unit` it follows from the name."""
    declared = Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        check=check,
        unit=_unit_of(name, kind) if unit is None else unit,
        dynamic=dynamic,
        synonyms=synonyms,
        aliases=aliases,
        per_listener=per_listener,
        read=read,
    )
    return field(default=default, metadata={"setting": declared}, repr=not declared.sensitive)


def _unit_of(name: str, kind: SettingKind) -> Unit:
    if kind is SettingKind.DOUBLE:
        return Unit.RATIO
    if name.endswith(".ms"):
        return Unit.MS
    return Unit.BYTES if name.endswith(".bytes") else Unit.NONE


def settings_of(config_class: type) -> Mapping[str, Setting]:
    """The declared list of a configuration class, by name, in the order declared."""
    declared: Iterable[Setting] = (
        item.metadata["setting"] for item in fields(config_class) if "setting" in item.metadata
    )
    return MappingProxyType({item.name: item for item in declared})


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    import difflib  # only where something is wrong: start-up does not pay for it

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
