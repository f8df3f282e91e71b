"""Tables, JSON and words on standard output: in colour for people at a terminal, plain and aligned otherwise.

Rich is loaded only when a table goes to a terminal: it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

Row = Sequence[str]


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
