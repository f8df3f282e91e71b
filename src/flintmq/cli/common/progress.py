"""How far something long is, on standard error: a line that changes at a terminal, a line now and then elsewhere.

Nothing is said in the first two seconds, so that what is quickly done leaves no trace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

import click

from flintmq.cli.common.output import size

_QUIET_S: Final = 2.0
_LINE_EVERY_S: Final = 5.0
_CHANGE_EVERY_S: Final = 0.1
_CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    def __init__(self, *, now: Callable[[], float] = time.monotonic, is_terminal: bool | None = None) -> None:
        self._now = now
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._due = now() + _QUIET_S
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown and self._is_terminal:
            click.echo(_CLEAR_LINE, err=True, nl=False, color=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """`done` of `total` bytes, 0 if that is not known yet. Called as often as one likes."""
        now = self._now()
        if now < self._due:
            return
        self._shown = True
        words = f"{what}: {share(done, total)}" if total else what
        if self._is_terminal:
            self._due = now + _CHANGE_EVERY_S
            click.echo(f"{_CLEAR_LINE}{words}", err=True, nl=False, color=True)
        else:
            self._due = now + _LINE_EVERY_S
            click.echo(words, err=True)


def share(done: int, total: int) -> str:
    """`42% of 1.5 GiB`."""
    return f"{min(100, 100 * done // total)}% of {size(total)}"
