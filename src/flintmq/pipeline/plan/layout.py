"""Boxes of a graph in rows from top to bottom, and where the lines between them run. Pure, and always the same.

A line that passes a row takes a narrow column of it (a `LayoutCell` without a node), so that it has somewhere to run.
All lines that leave one node are one line that forks. Invariant: cells of a row do not touch; no two lines share a
column between two rows unless they are the same line.
This module knows neither what a node is nor how anything looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

GAP: Final = 2
BOXES_MAX: Final = 4
_PASSING: Final = 3
_SWEEPS: Final = 4


@dataclass(eq=False)
class LayoutCell:
    """A box, or the place where a line passes."""

    line: int
    """The node whose line leaves here."""
    is_box: bool
    width: int = _PASSING
    left: int = 0
    above: list[LayoutCell] = field(default_factory=list)
    below: list[LayoutCell] = field(default_factory=list)
    exit: int = 0
    """The column where its line leaves at the bottom."""
    entries: list[tuple[int, int]] = field(default_factory=list)
    """Columns where lines come in at the top, each with the line."""

    @property
    def right(self) -> int:
        return self.left + self.width


def ranks(inputs: Sequence[Sequence[int]]) -> list[int]:
    """The row of each node: below all that it reads, and not too many boxes in a row. Nodes are in their order."""
    found: list[int] = []
    filled: dict[int, int] = {}
    for reads in inputs:
        rank = max((found[one] + 1 for one in reads), default=0)
        while filled.get(rank, 0) >= BOXES_MAX:
            rank += 1
        filled[rank] = filled.get(rank, 0) + 1
        found.append(rank)
    return found


def rows(inputs: Sequence[Sequence[int]]) -> list[list[LayoutCell]]:
    """Cells in rows, ordered so that few lines cross; without widths yet."""
    rank = ranks(inputs)
    last = [
        max([rank[at], *(rank[to] - 1 for to, reads in enumerate(inputs) if at in reads)])
        for at in range(len(rank))
    ]
    made: list[list[LayoutCell]] = [[] for _ in range(max(rank, default=-1) + 1)]
    by_place: dict[tuple[int, int], LayoutCell] = {}
    for node, first in enumerate(rank):
        for at in range(first, last[node] + 1):
            cell = LayoutCell(node, at == first)
            by_place[node, at] = cell
            made[at].append(cell)
            if at > first:
                _connect(by_place[node, at - 1], cell)
    for node, reads in enumerate(inputs):
        for read in reads:
            _connect(by_place[read, rank[node] - 1], by_place[node, rank[node]])
    _untangle(made)
    return made


def place(made: Sequence[Sequence[LayoutCell]], *, width: int) -> None:
    """Give every cell its columns, in a picture that is so wide where that is possible, and every line its own."""
    widest = max(range(len(made)), key=lambda at: sum(cell.width + GAP for cell in made[at]))
    _pack(made[widest], [0.0] * len(made[widest]), width)
    for row in made[widest + 1 :]:
        _pack(row, [_middle(cell.above, cell) for cell in row], width)
    for row in reversed(made[:widest]):
        _pack(row, [_middle(cell.below, cell) for cell in row], width)
    for at, row in enumerate(made):
        _enter(row, {cell.exit: cell.line for cell in made[at - 1]} if at else {})
        for cell in row:
            cell.exit = cell.left + cell.width // 2 if cell.is_box else cell.entries[0][0]


def _connect(above: LayoutCell, below: LayoutCell) -> None:
    above.below.append(below)
    below.above.append(above)


def _untangle(made: list[list[LayoutCell]]) -> None:
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for row in made if downward else reversed(made):
            index = {cell: at for other in made for at, cell in enumerate(other)}
            place_of = {
                cell: fmean([index[one] for one in near])
                if (near := cell.above if downward else cell.below)
                else index[cell]
                for cell in row
            }
            row.sort(key=lambda cell: place_of[cell])


def _middle(near: Sequence[LayoutCell], cell: LayoutCell) -> float:
    if not near:
        return 0.0
    return fmean([one.left + one.width / 2 for one in near]) - cell.width / 2


def _pack(row: Sequence[LayoutCell], wanted: Sequence[float], width: int) -> None:
    """As near to what is wanted as the neighbours allow; never off the left edge."""
    edge = 0
    for cell, left in zip(row, wanted, strict=True):
        cell.left = max(edge, round(left))
        edge = cell.right + GAP
    edge = max(width, sum(cell.width + GAP for cell in row) - GAP)
    for cell in reversed(row):
        cell.left = min(cell.left, edge - cell.width)
        edge = cell.left - GAP


def _enter(row: Sequence[LayoutCell], exits: Mapping[int, int]) -> None:
    """Columns for lines that come in: straight from above where that is in reach, and no other line's column."""
    for cell in row:
        coming = sorted(cell.above, key=lambda one: one.exit)
        straight = {one.line: one.exit for one in coming if _is_within(one.exit, cell)}
        taken = set(exits) | set(straight.values())
        for at, one in enumerate(coming):
            column = straight.get(one.line)
            if column is None:
                aim = cell.left + round(cell.width * (at + 1) / (len(coming) + 1))
                column = min((x for x in _inside(cell) if x not in taken), key=lambda x: (abs(x - aim), x))
                taken.add(column)
            cell.entries.append((column, one.line))


def _inside(cell: LayoutCell) -> range:
    return range(cell.left + 2, cell.right - 2) if cell.is_box else range(cell.left, cell.right)


def _is_within(column: int, cell: LayoutCell) -> bool:
    return column in _inside(cell)
