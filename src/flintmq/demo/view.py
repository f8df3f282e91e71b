"""How a demo looks: one screen of plots in a terminal, plain lines elsewhere, and the summary at its end.

    screen(metrics, scene, width=…, height=…)

While Spark starts, the screen shows the pipeline's file in place of results that are not there yet. Invariant: a
screen is never higher or wider than asked for, from 80 by 24 up, and a plot is exactly as wide as it was asked to be.
Both displays write to a descriptor of their own, so that what Spark's processes write never gets in between; when the
block is over, a terminal is as it was before. Rich is imported when a screen is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from flintmq.demo.metrics import DemoMetrics
from flintmq.demo.shop import CLICKS, ORDERS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table


_LINE_EVERY_S: Final = 2.0


def own_output() -> TextIO:
    """Return standard output, whatever is done to its descriptor later."""
    return os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")


class LineDisplay:
    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._due = 0.0
        self._file_shown = False

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._output.flush()

    def update(self, metrics: DemoMetrics, scene: Scene) -> None:
        if not self._file_shown:
            self._file_shown = True
            self.tell([f"broker at {scene.address}, pipeline in {scene.path}:", "", scene.file])
        if (now := time.monotonic()) >= self._due:
            self._due = now + _LINE_EVERY_S
            self.tell([progress_line(metrics, scene.passed_s)])

    def tell(self, lines: list[str]) -> None:
        self._output.write("".join(f"{line}\n" for line in lines))
        self._output.flush()


class TerminalDisplay:
    def __init__(self, output: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console: Console = Console(file=output)
        self._live: Live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> TerminalDisplay:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, metrics: DemoMetrics, scene: Scene) -> None:
        width, height = self._console.size
        self._live.update(screen(metrics, scene, width=width, height=height), refresh=True)

    def tell(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


_SIDE: Final = 2 + 2
"""Columns of a panel that are its frame and its padding."""
_HEAD_LINES: Final = 2
_FOOT_LINES: Final = 1
_PLOT_LINES: Final = 12
_LOWER_LINES: Final = 9
_FILE_LINES: Final = 6
"""Fewer are not worth a panel."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What does not come from counting."""

    passed_s: float
    seconds: float
    address: str
    file: str
    """The text of the pipeline's file."""
    path: str


def screen(metrics: DemoMetrics, scene: Scene, *, width: int, height: int) -> RenderableType:
    from rich.console import Group
    from rich.layout import Layout
    from rich.panel import Panel
    from rich.text import Text

    left, right = width - width // 2, width // 2
    spare = height - _HEAD_LINES - _FOOT_LINES - _LOWER_LINES
    upper = _PLOT_LINES if spare >= _PLOT_LINES + _FILE_LINES and metrics.windows else spare
    whole = Layout()
    whole.split_column(
        Layout(_head(metrics, scene, width), size=_HEAD_LINES),
        Layout(name="upper", size=upper),
        Layout(name="file", size=spare - upper, visible=spare > upper),
        Layout(name="lower", size=_LOWER_LINES),
        Layout(Text(" Ctrl-C ends it and tells the sums", style="dim"), size=_FOOT_LINES),
    )
    file = Layout(Panel(_file(scene, max(spare - upper, upper) - 2), title=f"the pipeline: {scene.path}"))
    if metrics.windows:
        whole["file"].update(file)
        whole["upper"].split_row(
            Layout(Panel(_revenue(metrics, left - _SIDE), title="revenue by country, EUR")),
            Layout(Panel(_rates(metrics, right - _SIDE), title="records a second"), size=right),
        )
    else:
        whole["upper"].update(file)
    whole["lower"].split_row(
        Layout(Panel(Group(*_dead(metrics, left - _SIDE)), title="dead letters")),
        Layout(Panel(_spark(metrics, right - _SIDE), title="Spark and the lake"), size=right),
    )
    return whole


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _head(metrics: DemoMetrics, scene: Scene, width: int) -> RenderableType:
    from rich.text import Text

    passed_s = min(scene.passed_s, scene.seconds)
    times = f" {clock(passed_s)} of {clock(scene.seconds)} "
    title = Text(" FlintMQ demo ", style="bold white on dark_orange3")
    title.append(f"  broker {scene.address}  ", style="default on default")
    title.append(metrics.stage, style="bold cyan on default")
    progress = Text(" ")
    progress.append(bar(passed_s, scene.seconds, max(0, width - len(times) - 2)), style="dark_orange3")
    progress.append(times, style="dim")
    title.truncate(width, overflow="ellipsis")
    return Text("\n").join((title, progress))


def _file(scene: Scene, lines: int) -> RenderableType:
    from rich.syntax import Syntax

    # As much as fits, from the steps on: they say most.
    text = scene.file.splitlines()
    start = next((at for at, line in enumerate(text) if line.startswith("steps:")), 0)
    start = min(start, max(0, len(text) - lines))
    return Syntax(
        "\n".join(text[start : start + lines]), "yaml", background_color="default", line_numbers=False
    )


def _revenue(metrics: DemoMetrics, width: int) -> Table:
    revenue = metrics.revenue()
    most = max(revenue.values(), default=0.0)
    names = max((len(one) for one in revenue), default=0)
    plot = max(4, width - names - 11 - 2)
    rows = [(name, bar(total, most, plot), f"{total:,.0f}") for name, total in revenue.items()]
    total = sum(revenue.values())
    windows = len({begins for _, begins in list(metrics.windows)})
    rows.append(("all", f"in {windows} windows of 10 s", f"{total:,.0f}"))
    return _grid(rows, "bold", "green", "cyan")


def _rates(metrics: DemoMetrics, width: int) -> Table:
    samples = list(metrics.samples)
    plot = max(4, width - 6 - 8 - 2)
    lines = (
        ("orders", [one.orders for one in samples]),
        ("clicks", [one.clicks for one in samples]),
        ("done", [one.done for one in samples]),
        ("lag", [float(one.lag) for one in samples]),
    )
    rows = [(name, sparkline(values, plot), f"{values[-1] if values else 0:,.0f}") for name, values in lines]
    rows += [
        ("", "", ""),
        ("sent", f"{metrics.sent[ORDERS]:,} orders", f"{metrics.sent[CLICKS]:,}"),
        ("good", "orders and clicks", f"{metrics.good:,}"),
        ("bought", "clicks that became orders", f"{metrics.bought:,}"),
    ]
    return _grid(rows, "bold", "magenta", "cyan")


def _dead(metrics: DemoMetrics, width: int) -> list[RenderableType]:
    from rich.text import Text

    reasons = metrics.dead_by_reason.most_common(4)
    most = reasons[0][1] if reasons else 0
    plot = 8
    rows = [
        (bar(count, most, plot), f"{count:,}", _cut(reason, width - plot - 8)) for reason, count in reasons
    ]
    while len(rows) < 4:
        rows.append(("", "", ""))
    share = metrics.dead / metrics.total if metrics.total else 0.0
    return [
        Text(f"{metrics.dead:,} records, {share:.1%} of all", style="bold red"),
        _grid(rows, "red", "cyan", "default", widest=2),
        Text(_cut(metrics.last_dead, width), style="dim"),
    ]


def _spark(metrics: DemoMetrics, width: int) -> Table:
    rows = []
    for name, batch in list(metrics.batches.items())[:5]:
        rows.append((name, f"{batch.rows:,} rows", f"{batch.seconds:.1f} s"))
    for name, one in (("lake/orders", metrics.lake_orders), ("lake/clicks", metrics.lake_clicks)):
        rows.append((name, f"{one.rows:,} rows", f"{one.files:,} files"))
    return _grid([(_cut(name, width - 24), *rest) for name, *rest in rows], "bold", "default", "cyan")


def _grid(rows: Sequence[Sequence[str]], *styles: str, widest: int = 1) -> Table:
    """Three columns; the widest has all the room that the others leave, and figures stand at the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), expand=True)
    for at, style in enumerate(styles):
        is_figure = at and at != widest
        table.add_column(
            style=style,
            justify="right" if is_figure else "left",
            no_wrap=True,
            ratio=1 if at == widest else None,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


_BAR: Final = " ▏▎▍▌▋▊▉█"
_LINE: Final = "▁▂▃▄▅▆▇█"


def bar(value: float, most: float, width: int) -> str:
    """From the left, to an eighth of a column."""
    share = min(1.0, max(0.0, value / most)) if most > 0 else 0.0
    eighths = round(share * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_BAR[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], width: int) -> str:
    """The last of them, the newest on the right; as high as the highest that is shown."""
    shown = values[-width:] if width else ()
    most = max(shown, default=0.0)
    top = len(_LINE) - 1
    line = "".join(_LINE[round(max(0.0, one) / most * top)] if most > 0 else _LINE[0] for one in shown)
    return line.rjust(width)


def progress_line(metrics: DemoMetrics, passed_s: float) -> str:
    revenue = sum(metrics.revenue().values())
    return (
        f"{passed_s:4.0f} s  {metrics.stage}  sent {metrics.total:,}  good {metrics.good:,}  "
        f"dead {metrics.dead:,}  lag {metrics.lag:,}  revenue {revenue:,.0f}  lake {metrics.lake_orders.rows:,}"
    )


def summary(metrics: DemoMetrics, *, kept: str | None) -> list[str]:
    """With a mark at each sum: whether it adds up."""
    sums = metrics.sums()
    name, left = max(len(one.name) for one in sums), max(len(one.left) for one in sums)
    windows, countries = len(metrics.windows), len(metrics.revenue())
    lake = metrics.lake_orders.files + metrics.lake_clicks.files
    lines = [
        f"{metrics.sent[ORDERS]:,} orders and {metrics.sent[CLICKS]:,} clicks, {windows:,} windows of {countries} "
        f"countries, {lake:,} files in the lake",
        *(
            f"  {'✓' if one.is_right else '✗'} {one.name:<{name}}  {one.left:>{left}} "
            f"{'=' if one.is_right else '≠'} {one.right}"
            for one in sums
        ),
    ]
    if kept is None:
        return [*lines, "Nothing is left of it; --keep DIR keeps broker, lake and pipeline to look at."]
    return [
        *lines,
        f"Kept in {kept}. Look at it:",
        f"  flintmq serve --data-dir {kept}/broker",
        f"  flintmq pipeline plan {kept}/demo.yaml",
    ]
