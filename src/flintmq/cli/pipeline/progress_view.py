"""How far a pipeline is, on standard error: a table at a terminal, a line for each batch elsewhere.

Rich is loaded only for a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from flintmq.cli.common.output import Row

if TYPE_CHECKING:
    from flintmq.pipeline.runtime.progress import RunProgress

COLUMNS = ("sink", "batch", "rows", "rows/s", "lag", "batch ms", "state rows", "failed")
NUMBERS = COLUMNS[1:]


class ProgressView:
    """`show` takes what a run tells of itself."""

    def __init__(self, name: str, *, is_terminal: bool | None = None) -> None:
        self._name = name
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._live: Any = None
        self._shown: dict[str, int] = {}
        self._state = ""

    def __enter__(self) -> ProgressView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, state: str, figures: RunProgress) -> None:
        if self._is_terminal:
            self._draw(state, figures)
            return
        if state != self._state:
            self._state = state
            click.echo(f"{self._name}: {state}", err=True)
        for name, one in figures.sinks.items():
            if one.batch > self._shown.get(name, -1):
                self._shown[name] = one.batch
                row = dict(zip(COLUMNS, sink_row(name, figures.as_json()["sinks"][name]), strict=True))
                words = ", ".join(f"{title} {row[title]}" for title in COLUMNS[1:] if row[title] != "-")
                click.echo(f"{name}: {words}", err=True)

    def _draw(self, state: str, figures: RunProgress) -> None:
        from rich import box
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table

        dead = f", {figures.dead_letters:,} dead letters" if figures.dead_letters else ""
        table = Table(
            title=f"{self._name}: {state}{dead}", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
        )
        for column in COLUMNS:
            table.add_column(column, justify="right" if column in NUMBERS else "left")
        for name, one in figures.as_json()["sinks"].items():
            table.add_row(*sink_row(name, one))
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        self._live.update(table, refresh=True)


def sink_row(name: str, one: Mapping[str, Any]) -> Row:
    """Of a sink's figures as JSON has them; a dash where there is nothing to say."""
    failed = sum(one["failed"].values())
    return (
        name,
        "-" if one["batch"] < 0 else str(one["batch"]),
        f"{one['rows']:,}",
        f"{one['rows_per_second']:,.0f}",
        f"{one['lag']:,}",
        f"{one['batch_ms']:,}",
        f"{one['state_rows']:,}" if one["state_rows"] else "-",
        f"{failed:,}" if failed else "-",
    )
