"""Tables, JSON and words on standard output: in colour for people at a terminal, plain and aligned otherwise.

Rich is loaded only when a table goes to a terminal: it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

Row = Sequence[str]

UNKNOWN_END: Final = (1 << 63) - 1
"""The end of an offset range that reaches to an unknown end of a log."""

_RANGES_SHOWN: Final = 5


def print_table(columns: Sequence[str], rows: Sequence[Row], *, numbers: Sequence[str] = ()) -> None:
    """`numbers` are the columns to be aligned on the right."""
    if sys.stdout.isatty():
        _print_rich(columns, rows, numbers)
    else:
        for line in plain_table(columns, rows, numbers=numbers):
            click.echo(line)


def plain_table(columns: Sequence[str], rows: Sequence[Row], *, numbers: Sequence[str] = ()) -> list[str]:
    """Aligned with spaces, two between columns; the last column is not padded."""
    shown = [[name.upper() for name in columns], *rows]
    widths = [max(len(row[at]) for row in shown) for at in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ).rstrip()
        for row in shown
    ]


def _print_rich(columns: Sequence[str], rows: Sequence[Row], numbers: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for at, name in enumerate(columns):
        table.add_column(
            name,
            justify="right" if name in numbers else "left",
            style="bold" if at == 0 else "",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(words: str) -> None:
    """Something for people beside the output itself: on standard error."""
    click.secho(words, dim=True, err=True)


def warn(words: str) -> None:
    click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {words}", err=True)


def size(count: int | None) -> str:
    """`1.5 MiB`; a dash where it is not known."""
    if count is None:
        return "-"
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def time_of(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; a dash where a record has no time."""
    if timestamp_ms < 0:
        return "-"
    seconds, ms = divmod(timestamp_ms, 1000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may claim any time
        return f"@{timestamp_ms}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def many(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def duration_text(seconds: float) -> str:
    """Return `12 s`, `3 min 5 s`, `2 h 10 min`, `4 d 1 h`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


# ---- offset ranges: each is the first offset and the one after the last


def ranges_fields(ranges: Iterable[tuple[int, int]]) -> list[dict[str, int | None]]:
    return [
        {"first_offset": first, "last_offset": None if end == UNKNOWN_END else end - 1}
        for first, end in ranges
    ]


def ranges_text(ranges: Sequence[tuple[int, int]], count: int) -> str:
    """Return `offsets 3–5, 9, and 2 more`; a dash for none."""
    if not count:
        return "-"
    shown = [_range_text(*one) for one in ranges[:_RANGES_SHOWN]]
    if count > len(shown):
        shown.append(f"and {count - len(shown):,} more")
    return f"offsets {', '.join(shown)}"


def _range_text(first: int, end: int) -> str:
    if end == UNKNOWN_END:
        return f"{first} and on"
    return str(first) if end == first + 1 else f"{first}–{end - 1}"
