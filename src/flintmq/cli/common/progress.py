"""Progress of long work, on standard error: a bar at a terminal, a line now and then elsewhere.

    with Progress("writing") as progress:
        progress.tell_pieces(3, 20)                       # writing: 3 of 20 pieces
        progress.tell_bytes("verifying t-0", 42, 100)     # verifying t-0: 42% of 100 B

Nothing is shown for the first two seconds, so that quick work leaves no trace. Rich is imported only for a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import click

from flintmq.cli.common.output import size

QUIET_S: Final = 2.0
LINE_EVERY_S: Final = 5.0
CHANGE_EVERY_S: Final = 0.1


class Progress:
    def __init__(
        self, doing: str = "", *, now: Callable[[], float] = time.monotonic, is_terminal: bool | None = None
    ) -> None:
        self._doing = doing
        self._now = now
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._due: float | None = None
        """When something is to be shown next; None before a job has begun."""
        self._shown: tuple[Any, Any] | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def tell_bytes(self, doing: str, done: int, total: int) -> None:
        """Show `done` of `total` bytes, 0 if that is not known yet. May be called at any rate."""
        if self._is_due():
            self._show(doing, byte_share(done, total) if total else "", done, total)

    def tell_pieces(self, done: int, total: int) -> None:
        """Show `done` of `total` pieces of one job, which ends when all are done. May be called at any rate."""
        if done >= total:
            self.clear()
            self._due = None
        elif self._is_due():
            self._show(self._doing, f"{done} of {total} pieces", done, total)

    def clear(self) -> None:
        """Remove the bar, before something else is printed or at the end."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None

    def _is_due(self) -> bool:
        if self._due is None:
            self._due = self._now() + QUIET_S
        return self._now() >= self._due

    def _show(self, doing: str, share: str, done: int, total: int) -> None:
        if self._is_terminal:
            self._due = self._now() + CHANGE_EVERY_S
            self._draw(doing, share, done, total)
        else:
            self._due = self._now() + LINE_EVERY_S
            click.echo(f"{doing}: {share}" if share else doing, err=True)

    def _draw(self, doing: str, share: str, done: int, total: int) -> None:
        if self._shown is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[share]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True, force_terminal=True),
                transient=True,
            )
            bar.start()
            self._shown = bar, bar.add_task(doing, total=total or None, share=share)
        bar, task = self._shown
        bar.update(task, description=doing, completed=done, total=total or None, share=share, refresh=True)


def byte_share(done: int, total: int) -> str:
    """Return `42% of 1.5 GiB`."""
    return f"{min(100, 100 * done // total)}% of {size(total)}"
