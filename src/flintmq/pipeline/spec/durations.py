"""Durations as people write them: `10 minutes`, `1 hour 30 seconds`, and short as `10m`. Pure.

Spark takes fewer words for them than a file does: it is given `for_spark(text)` and never the text of the file.
"""

from __future__ import annotations

import re
from typing import Final

EXAMPLES: Final = "write it like 10 seconds, 5 minutes, 1 hour or 2 days"

LONGEST_MS: Final = 36_500 * 86_400_000
"""A hundred years. Spark counts microseconds in 64 bits, and days in 32."""

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
_SHOWN: Final = ("week", "day", "hour", "minute", "second", "millisecond")
_PIECE: Final = re.compile(r"\s*(\d{1,12})\s*([a-z]+)", re.IGNORECASE | re.ASCII)


def parse_ms(text: str) -> int | None:
    """None if it is no duration. Months and years are none: they differ in length."""
    at, total = 0, 0
    text = text.strip()
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            return None
        unit = piece[2].lower()
        scale = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if scale is None:
            return None
        total += int(piece[1]) * scale
        at = piece.end()
    return total if text else None


def for_spark(text: str) -> str:
    """The same time in words that Spark knows; what is no duration is left as it is, for Spark to refuse."""
    duration_ms = parse_ms(text)
    return str(text) if duration_ms is None else in_words(duration_ms)


def in_words(duration_ms: int) -> str:
    """As Spark takes it, in the largest unit that is exact."""
    for unit in _SHOWN:
        count, rest = divmod(duration_ms, _UNITS_MS[unit])
        if count and not rest:
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return "0 seconds"
