"""Plots of one line, out of Unicode's blocks. Pure.

Invariant: a plot is exactly as wide as it was asked to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
