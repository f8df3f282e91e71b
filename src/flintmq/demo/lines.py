"""What a demo says in plain lines: how far it is, where there is no terminal, and the summary at its end. Pure."""

from __future__ import annotations

from flintmq.demo.figures import DemoFigures
from flintmq.demo.shop import CLICKS, ORDERS


def progress_line(figures: DemoFigures, passed_s: float) -> str:
    revenue = sum(figures.revenue().values())
    return (
        f"{passed_s:4.0f} s  {figures.stage}  sent {figures.total:,}  good {figures.good:,}  "
        f"dead {figures.dead:,}  lag {figures.lag:,}  revenue {revenue:,.0f}  lake {figures.lake_orders.rows:,}"
    )


def summary(figures: DemoFigures, *, kept: str | None) -> list[str]:
    """With a mark at each sum: whether it adds up."""
    sums = figures.sums()
    name, left = max(len(one.name) for one in sums), max(len(one.left) for one in sums)
    windows, countries = len(figures.windows), len(figures.revenue())
    lake = figures.lake_orders.files + figures.lake_clicks.files
    lines = [
        f"{figures.sent[ORDERS]:,} orders and {figures.sent[CLICKS]:,} clicks, {windows:,} windows of {countries} "
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
