"""Durations as people type them: `90s`, `1.5h`, `10 minutes`, `1 hour 30 seconds`. Pure.

The one parser for broker settings, command-line options, Spark options and pipeline files.
"""

from __future__ import annotations

import re
from typing import Final

EXAMPLES: Final = "write it like 10 seconds, 5 minutes, 1 hour or 2 days"

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_WORDS: Final = ("week", "day", "hour", "minute", "second", "millisecond")
# Exact, and without `fractions`, which every start would import.
_DECIMALS_MAX: Final = 30
_DENOMINATOR: Final = 10**_DECIMALS_MAX
_PART: Final = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-z]*)", re.IGNORECASE)


def parse_duration_ms(text: str, *, default_unit: str | None = None) -> int | None:
    """Return milliseconds, or None if `text` is no duration. Months and years are none: they differ in length.

    A single number without a unit is a duration only if there is a `default_unit`.
    """
    text = text.strip()
    position, total = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        unit = part[2].lower()
        if not unit:
            if default_unit is None or part[0] != text:
                return None
            unit = default_unit
        scale_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if scale_ms is None:
            return None
        whole, _, decimals = part[1].partition(".")
        total += int(whole + decimals) * scale_ms * 10 ** (_DECIMALS_MAX - len(decimals))
        position = part.end()
    return (2 * total + _DENOMINATOR) // (2 * _DENOMINATOR) if text else None


def duration_words(duration_ms: int) -> str:
    """Write a duration in the largest unit that is exact, in words that Spark takes too: `90 seconds`."""
    for unit in _WORDS:
        count, rest = divmod(duration_ms, _UNITS_MS[unit])
        if count and not rest:
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return "0 seconds"


def normalized_duration(text: str) -> str:
    """Write a duration as one number and one unit; return any other text unchanged."""
    duration_ms = parse_duration_ms(text)
    return str(text) if duration_ms is None else duration_words(duration_ms)
