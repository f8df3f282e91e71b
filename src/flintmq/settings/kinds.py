"""How one setting's text becomes a value, and back: Kafka's types, human units, checks.

Invariant: `write_value(kind, read_value(kind, text))` is a text that `read_value` reads as the same value.
This module knows no setting by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from flintmq.settings.durations import parse_duration_ms


class SettingKind(IntEnum):
    """The types of Kafka's configuration; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Unit(Enum):
    """What a number counts, so that people may write `1h`, `2GB` or `80%`."""

    NONE = ""
    BYTES = "bytes"
    MS = "milliseconds"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """A condition on a value, with the words that explain it to whoever broke it."""

    words: str
    accepts: Callable[[Any], bool]


INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_RANGES = {
    SettingKind.SHORT: ("a 16-bit number", -(1 << 15), (1 << 15) - 1),
    SettingKind.INT: ("a 32-bit number", -INT_MAX - 1, INT_MAX),
    SettingKind.LONG: ("a 64-bit number", -LONG_MAX - 1, LONG_MAX),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]+)")
_COMMA = re.compile(r"\s*,\s*")

# Powers of 1024 with or without the `i`: what people mean by "2GB" of memory or of a segment.
_BYTES = {
    prefix + suffix: 1024**power
    for power, prefix in enumerate(("", "k", "m", "g", "t"))
    for suffix in (("b",) if not prefix else ("", "b", "ib"))
}


def read_value(kind: SettingKind, text: str) -> object:
    """Read `text` as Kafka does; ValueError says what was expected."""
    text = text.strip()
    if kind in _RANGES:
        words, low, high = _RANGES[kind]
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"expected {words}")
        return int(text)
    if kind is SettingKind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"
    if kind is SettingKind.DOUBLE:
        if not _DOUBLE.fullmatch(text):
            raise ValueError("expected a number such as 0.5")
        return float(text)
    if kind is SettingKind.LIST:
        return tuple(_COMMA.split(text)) if text else ()
    return text


def write_value(kind: SettingKind, value: object) -> str:
    """The text of a value, as Kafka writes it in DescribeConfigs."""
    if kind is SettingKind.BOOLEAN:
        return "true" if value else "false"
    if kind is SettingKind.LIST:
        assert isinstance(value, tuple)
        return ",".join(str(item) for item in value)
    return str(value)


def plain_number(unit: Unit, text: str) -> str:
    """`1h` → `3600000`, `2GB` → `2147483648`, `80%` → `0.8`; any other text comes back as it is."""
    if unit is Unit.MS:
        duration_ms = parse_duration_ms(text)
        return text if duration_ms is None else str(duration_ms)
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return text
    number, suffix = float(match[1]), match[2].lower()
    if unit is Unit.RATIO and suffix == "%":
        return repr(number / 100)
    scale = _BYTES.get(suffix) if unit is Unit.BYTES else None
    return text if scale is None else str(round(number * scale))


def at_least(low: float) -> ValueCheck:
    return ValueCheck(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> ValueCheck:
    return ValueCheck(f"between {low} and {high}", lambda value: low <= value <= high)


def between_or(low: int, high: int, other: int) -> ValueCheck:
    return ValueCheck(
        f"between {low} and {high}, or {other}", lambda value: low <= value <= high or value == other
    )


def one_of(*choices: str) -> ValueCheck:
    return ValueCheck("one of " + ", ".join(choices), lambda value: value in choices)


def distinct_from(*choices: str) -> ValueCheck:
    """A list, empty if need be, of different words taken from `choices`."""
    return ValueCheck(
        "different items of " + ", ".join(choices),
        lambda value: len(set(value)) == len(value) and all(item in choices for item in value),
    )


def matching(pattern: str, words: str) -> ValueCheck:
    """A text, or a list every item of which, matches `pattern` in full."""
    expression = re.compile(pattern)

    def accepts(value: Any) -> bool:
        items = (value,) if isinstance(value, str) else value
        return all(expression.fullmatch(item) for item in items)

    return ValueCheck(words, accepts)
