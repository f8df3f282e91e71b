"""The flow of a pipeline as text: boxes and lines, for a terminal and for documents. Pure.

    print(draw(pipeline))
    print(draw(pipeline, is_ascii=True))

Invariant: the same pipeline gives the same text. It is at most `width` columns wide, unless so many lines run beside
each other that it cannot be.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from flintmq.pipeline.plan.descriptions import dead_letter_origins, describe, describe_run
from flintmq.pipeline.plan.layout import GAP, LayoutCell, place, rows
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import Pipeline

_LINES_MAX: Final = 8
_TEXT_MAX: Final = 44
_TEXT_MIN: Final = 12
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SIGNS: Final = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
"""By the directions in which something goes on."""
_ASCII: Final = str.maketrans(
    {
        **dict.fromkeys("└┘┐┌├┤┬┴┼╭╮╰╯", "+"),
        **dict.fromkeys("─╴╶", "-"),
        **dict.fromkeys("│╵╷", "|"),
        "▼": "v",
    }
    | {"·": "-", "…": "~", "→": ">"}
)


def draw(pipeline: Pipeline, *, width: int = 100, is_ascii: bool = False) -> str:
    graph = Graph(pipeline)
    nodes = graph.order()
    numbers = {id(node): at for at, node in enumerate(nodes)}
    made = rows([[numbers[id(one)] for one in graph.inputs(node)] for node in nodes])
    texts: dict[LayoutCell, list[str]] = {}
    for row in made:
        for cell in row:
            if cell.is_box:
                node = nodes[cell.line]
                said = [f"{node.name} · {node.TAG}", *describe(node, graph)]
                texts[cell] = _wrapped(list(map(_plain, said)) if is_ascii else said, _room(row, width))
                # Wide enough for all lines that come in, between lines that pass.
                cell.width = max(max(map(_width, texts[cell])) + 4, 3 * len(cell.above) + 6)
    place(made, width=width)
    lines = [*_head(pipeline, width), "", *_picture(made, texts)]
    if tail := _tail(pipeline, width):
        lines += ["", *tail]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return _plain(text) if is_ascii else text


def _plain(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def _head(pipeline: Pipeline, width: int) -> list[str]:
    facts = (
        str(pipeline.name),
        describe_run(pipeline),
        str(pipeline.bootstrap_servers),
        f"checkpoint {pipeline.checkpoint or f'.flint/{pipeline.name}'}",
    )
    return textwrap.wrap(" · ".join(facts), width, subsequent_indent="  ")


def _tail(pipeline: Pipeline, width: int) -> list[str]:
    if pipeline.dead_letters is None:
        return []
    origins = dead_letter_origins(pipeline) or ["nobody"]
    return textwrap.wrap(f"dead letters of {', '.join(origins)} → topic {pipeline.dead_letters.topic}", width)


# ---- boxes


def _room(row: Sequence[LayoutCell], width: int) -> int:
    """For the text of each box in a row."""
    boxes = [cell for cell in row if cell.is_box]
    passing = sum(cell.width + GAP for cell in row if not cell.is_box)
    each = (width - passing - GAP * (len(boxes) - 1)) // len(boxes) - 4
    return max(_TEXT_MIN, min(_TEXT_MAX, each))


def _wrapped(said: Sequence[str], room: int) -> list[str]:
    """Lines that fit; what is too long ends in `…`. The first is the title, which has the box's edge around it."""
    found = [_cut(said[0], room - 2) + "  "]
    for text in said[1:]:
        pieces: list[str] = []
        for line in text.splitlines():
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            pieces += textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False)
        if len(pieces) > _LINES_MAX:
            pieces = [*pieces[: _LINES_MAX - 1], "…"]
        found += [_cut(piece, room) for piece in pieces]
    return found


def _cut(text: str, room: int) -> str:
    if _width(text) <= room:
        return text
    kept = ""
    for char in text:
        if _width(kept + char) >= room:
            break
        kept += char
    return kept.rstrip() + "…"


def _width(text: str) -> int:
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# ---- the picture


def _picture(made: Sequence[Sequence[LayoutCell]], texts: dict[LayoutCell, list[str]]) -> Iterator[str]:
    for at, row in enumerate(made):
        if at:
            yield from _between(made[at - 1], row)
        for line in range(max(len(texts[cell]) for cell in row if cell.is_box) + 1):
            pieces: list[tuple[int, str]] = []
            for cell in row:
                if cell.is_box and line <= len(texts[cell]):
                    pieces.append((cell.left, _box_line(cell, texts[cell], line)))
                elif cell.below:
                    pieces.append((cell.exit, "│"))
            yield _joined(pieces)


def _box_line(cell: LayoutCell, texts: Sequence[str], line: int) -> str:
    inner = cell.width - 4
    if line == 0:
        title = texts[0].rstrip()
        return f"╭─ {title} {'─' * (inner - _width(title) - 1)}╮"
    if line == len(texts):
        foot = ["─"] * (cell.width - 2)
        if cell.below:
            foot[cell.exit - cell.left - 1] = "┬"
        return f"╰{''.join(foot)}╯"
    return f"│ {texts[line]}{' ' * (inner - _width(texts[line]))} │"


def _joined(pieces: Sequence[tuple[int, str]]) -> str:
    found, at = "", 0
    for left, text in pieces:
        found += " " * (left - at) + text
        at = left + _width(text)
    return found


def _between(above: Sequence[LayoutCell], below: Sequence[LayoutCell]) -> Iterator[str]:
    """The lines from one row to the next: each line that bends has a track, a row of text of its own for its span."""
    entries: dict[int, list[int]] = {}
    for cell in below:
        for column, line in cell.entries:
            entries.setdefault(line, []).append(column)
    spans = {
        cell.line: (min(cell.exit, *entries[cell.line]), max(cell.exit, *entries[cell.line]))
        for cell in above
        if cell.line in entries
    }
    exits = {cell.line: cell.exit for cell in above}
    tracks = _tracks({line: span for line, span in spans.items() if span[0] != span[1]})
    height = max(tracks.values(), default=0) + 1
    size = max(right for _, right in spans.values()) + 1 if spans else 0
    for at in range(height):
        yield _track(at, size, spans, exits, entries, tracks)
    heads = [(column, "▼" if cell.is_box else "│") for cell in below for column, _ in cell.entries]
    yield _joined(sorted(heads))


def _tracks(spans: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Lines that overlap get different ones."""
    found: dict[int, int] = {}
    ends: list[int] = []
    for line, (left, right) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        track = next((at for at, end in enumerate(ends) if end + 1 < left), len(ends))
        if track == len(ends):
            ends.append(right)
        ends[track] = right
        found[line] = track
    return found


def _track(
    at: int,
    size: int,
    spans: dict[int, tuple[int, int]],
    exits: dict[int, int],
    entries: dict[int, list[int]],
    tracks: dict[int, int],
) -> str:
    ways = [0] * size
    crossing = [False] * size
    for line, (left, right) in spans.items():
        if tracks.get(line) != at:
            continue
        for column in range(left, right + 1):
            ways[column] |= (_LEFT if column > left else 0) | (_RIGHT if column < right else 0)
        ways[exits[line]] |= _UP
        for column in entries[line]:
            ways[column] |= _DOWN
    for line in spans:
        track = tracks.get(line)
        if track is None or track > at:
            crossing[exits[line]] = True
        elif track < at:
            for column in entries[line]:
                crossing[column] = True
    # A line that goes down is drawn over one that goes across: what only crosses does not meet.
    return "".join(
        "│" if is_crossing else _SIGNS[way] for way, is_crossing in zip(ways, crossing, strict=True)
    )
