"""Acknowledgements that wait until an offset lies below an end of a log. Pure."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.errors import FlintError

Settled = Callable[[FlintError | None], object]
"""Called with None, or with the reason why what was waited for will never be."""


def settle_below(waiting: list[tuple[int, Settled]], end: int) -> list[tuple[int, Settled]]:
    """Call those whose offset lies below `end`; return the others. A call may add to what waits."""
    left: list[tuple[int, Settled]] = []
    for offset, call in waiting:
        if offset < end:
            call(None)
        else:
            left.append((offset, call))
    return left
