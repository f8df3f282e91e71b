"""Damaged ranges of offsets, for people and for scripts. Each is the first offset and the one after the last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

UNKNOWN_END: Final = (1 << 63) - 1
"""The end of a range of which it is not known, at the end of a log."""

_SHOWN: Final = 5


def ranges_fields(ranges: Iterable[tuple[int, int]]) -> list[dict[str, int | None]]:
    return [
        {"first_offset": first, "last_offset": None if end == UNKNOWN_END else end - 1}
        for first, end in ranges
    ]


def ranges_text(ranges: Sequence[tuple[int, int]], count: int) -> str:
    """`offsets 3–5, 9, and 2 more`; a dash for none."""
    if not count:
        return "-"
    shown = [_range_text(*one) for one in ranges[:_SHOWN]]
    if count > len(shown):
        shown.append(f"and {count - len(shown):,} more")
    return f"offsets {', '.join(shown)}"


def _range_text(first: int, end: int) -> str:
    if end == UNKNOWN_END:
        return f"{first} and on"
    return str(first) if end == first + 1 else f"{first}–{end - 1}"
