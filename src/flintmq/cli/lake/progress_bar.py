"""How far the workers are: a bar at a terminal, a line now and then elsewhere, both on standard error.

Nothing is said in the first two seconds of a job, so that what is quickly done leaves no trace. Rich is loaded only
for a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import click

_QUIET_S: Final = 2.0
_LINE_EVERY_S: Final = 10.0


class Bar:
    def __init__(
        self,
        doing: str = "writing",
        *,
        now: Callable[[], float] = time.monotonic,
        is_terminal: bool | None = None,
    ) -> None:
        self._doing = doing
        self._now = now
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._due: float | None = None
        """When something is to be said; None between two jobs."""
        self._shown: tuple[Any, Any] | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def tell(self, done: int, total: int) -> None:
        """`done` of `total` pieces; called as often as one likes."""
        now = self._now()
        if done >= total:
            self.clear()
            self._due = None
            return
        if self._due is None:
            self._due = now + _QUIET_S
        if now < self._due:
            return
        if self._is_terminal:
            self._draw(done, total)
        else:
            self._due = now + _LINE_EVERY_S
            click.echo(f"{self._doing}: {done} of {total} pieces", err=True)

    def _draw(self, done: int, total: int) -> None:
        if self._shown is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            bar = Progress(
                TextColumn(self._doing),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("pieces"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            bar.start()
            self._shown = bar, bar.add_task(self._doing, total=total)
        bar, task = self._shown
        bar.update(task, completed=done, total=total)

    def clear(self) -> None:
        """Before something else is said."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None
