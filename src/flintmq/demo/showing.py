"""Where a demo is seen: a screen that changes at a terminal, lines now and then elsewhere.

Invariant: both write to a descriptor of their own, so that what Spark's processes write elsewhere never gets in
between; when the block is over, a terminal is as it was before.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TextIO

from flintmq.demo.figures import DemoFigures
from flintmq.demo.lines import progress_line
from flintmq.demo.view import Scene, screen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_LINE_EVERY_S: Final = 2.0


def own_output() -> TextIO:
    """Standard output, whatever is done to its descriptor later."""
    return os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")


class Lines:
    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._due = 0.0
        self._file_shown = False

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._output.flush()

    def update(self, figures: DemoFigures, scene: Scene) -> None:
        if not self._file_shown:
            self._file_shown = True
            self.tell([f"broker at {scene.address}, pipeline in {scene.path}:", "", scene.file])
        if (now := time.monotonic()) >= self._due:
            self._due = now + _LINE_EVERY_S
            self.tell([progress_line(figures, scene.passed_s)])

    def tell(self, lines: list[str]) -> None:
        self._output.write("".join(f"{line}\n" for line in lines))
        self._output.flush()


class Terminal:
    def __init__(self, output: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console: Console = Console(file=output)
        self._live: Live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Terminal:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, figures: DemoFigures, scene: Scene) -> None:
        width, height = self._console.size
        self._live.update(screen(figures, scene, width=width, height=height), refresh=True)

    def tell(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
