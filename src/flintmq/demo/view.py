"""How a demo looks in a terminal: one screen of plots, as large as the terminal.

    screen(figures, scene, width=…, height=…)

While Spark starts, the screen shows the pipeline's file in place of results that are not there yet. Invariant: a
screen is never higher or wider than asked for, from 80 by 24 up. Rich is imported when a screen is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.demo.figures import DemoFigures
from flintmq.demo.plots import bar, sparkline
from flintmq.demo.shop import CLICKS, ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

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


def screen(figures: DemoFigures, scene: Scene, *, width: int, height: int) -> RenderableType:
    from rich.console import Group
    from rich.layout import Layout
    from rich.panel import Panel
    from rich.text import Text

    left, right = width - width // 2, width // 2
    spare = height - _HEAD_LINES - _FOOT_LINES - _LOWER_LINES
    upper = _PLOT_LINES if spare >= _PLOT_LINES + _FILE_LINES and figures.windows else spare
    whole = Layout()
    whole.split_column(
        Layout(_head(figures, scene, width), size=_HEAD_LINES),
        Layout(name="upper", size=upper),
        Layout(name="file", size=spare - upper, visible=spare > upper),
        Layout(name="lower", size=_LOWER_LINES),
        Layout(Text(" Ctrl-C ends it and tells the sums", style="dim"), size=_FOOT_LINES),
    )
    file = Layout(Panel(_file(scene, max(spare - upper, upper) - 2), title=f"the pipeline: {scene.path}"))
    if figures.windows:
        whole["file"].update(file)
        whole["upper"].split_row(
            Layout(Panel(_revenue(figures, left - _SIDE), title="revenue by country, EUR")),
            Layout(Panel(_rates(figures, right - _SIDE), title="records a second"), size=right),
        )
    else:
        whole["upper"].update(file)
    whole["lower"].split_row(
        Layout(Panel(Group(*_dead(figures, left - _SIDE)), title="dead letters")),
        Layout(Panel(_spark(figures, right - _SIDE), title="Spark and the lake"), size=right),
    )
    return whole


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _head(figures: DemoFigures, scene: Scene, width: int) -> RenderableType:
    from rich.text import Text

    passed_s = min(scene.passed_s, scene.seconds)
    times = f" {clock(passed_s)} of {clock(scene.seconds)} "
    title = Text(" FlintMQ demo ", style="bold white on dark_orange3")
    title.append(f"  broker {scene.address}  ", style="default on default")
    title.append(figures.stage, style="bold cyan on default")
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


def _revenue(figures: DemoFigures, width: int) -> Table:
    revenue = figures.revenue()
    most = max(revenue.values(), default=0.0)
    names = max((len(one) for one in revenue), default=0)
    plot = max(4, width - names - 11 - 2)
    rows = [(name, bar(total, most, plot), f"{total:,.0f}") for name, total in revenue.items()]
    total = sum(revenue.values())
    windows = len({begins for _, begins in list(figures.windows)})
    rows.append(("all", f"in {windows} windows of 10 s", f"{total:,.0f}"))
    return _grid(rows, "bold", "green", "cyan")


def _rates(figures: DemoFigures, width: int) -> Table:
    samples = list(figures.samples)
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
        ("sent", f"{figures.sent[ORDERS]:,} orders", f"{figures.sent[CLICKS]:,}"),
        ("good", "orders and clicks", f"{figures.good:,}"),
        ("bought", "clicks that became orders", f"{figures.bought:,}"),
    ]
    return _grid(rows, "bold", "magenta", "cyan")


def _dead(figures: DemoFigures, width: int) -> list[RenderableType]:
    from rich.text import Text

    reasons = figures.dead_by_reason.most_common(4)
    most = reasons[0][1] if reasons else 0
    plot = 8
    rows = [
        (bar(count, most, plot), f"{count:,}", _cut(reason, width - plot - 8)) for reason, count in reasons
    ]
    while len(rows) < 4:
        rows.append(("", "", ""))
    share = figures.dead / figures.total if figures.total else 0.0
    return [
        Text(f"{figures.dead:,} records, {share:.1%} of all", style="bold red"),
        _grid(rows, "red", "cyan", "default", widest=2),
        Text(_cut(figures.last_dead, width), style="dim"),
    ]


def _spark(figures: DemoFigures, width: int) -> Table:
    rows = []
    for name, batch in list(figures.batches.items())[:5]:
        rows.append((name, f"{batch.rows:,} rows", f"{batch.seconds:.1f} s"))
    for name, one in (("lake/orders", figures.lake_orders), ("lake/clicks", figures.lake_clicks)):
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
