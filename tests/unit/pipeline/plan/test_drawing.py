"""The flow as text: golden pictures, and lines that lead where the pipeline says, whatever the graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.pipeline import ConsoleSink, Pipeline, PythonStep, SqlStep, TopicSource, load
from flintmq.pipeline.plan.drawing import draw

GOLDEN = Path(__file__).parent / "golden"
UP, DOWN, LEFT, RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
WAYS = {
    "└": (UP, RIGHT),
    "┘": (UP, LEFT),
    "┌": (DOWN, RIGHT),
    "┐": (DOWN, LEFT),
    "├": (UP, DOWN, RIGHT),
    "┤": (UP, DOWN, LEFT),
    "┬": (DOWN, LEFT, RIGHT),
    "┴": (UP, LEFT, RIGHT),
    "┼": (UP, DOWN, LEFT, RIGHT),
}


def edges_in(picture: str) -> set[tuple[str, str]]:
    """Read a picture as a person does: from the foot of a box along its line to arrowheads."""
    lines = picture.splitlines()
    wide = max(map(len, lines))
    grid = [line.ljust(wide) for line in lines]
    found = set()
    for row, line in enumerate(grid):
        for column, char in enumerate(line):
            if char == "┬" and "╰" in line[:column] and "╯" not in line[line.rindex("╰", 0, column) : column]:
                name = name_above(grid, row, line.rindex("╰", 0, column))
                found |= {(name, name_at(grid, end)) for end in ends(grid, row + 1, column)}
    return found


def name_above(grid: list[str], row: int, left: int) -> str:
    while grid[row][left] != "╭":
        row -= 1
    return grid[row][left + 3 :].split()[0]


def name_at(grid: list[str], end: tuple[int, int]) -> str:
    row, column = end
    return grid[row][grid[row].rindex("╭", 0, column) + 3 :].split()[0]


def ends(grid: list[str], row: int, column: int) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    waiting = [(row, column, DOWN)]
    seen = set(waiting)
    while waiting:
        row, column, way = waiting.pop()
        char = grid[row][column]
        if char == "▼":
            found.add((row + 1, column))
            continue
        if char in WAYS:
            back = (-way[0], -way[1])
            assert back in WAYS[char], f"a line runs into {char} from the side"
            ways = [one for one in WAYS[char] if one != back]
        else:
            # A line across passes behind one that goes down.
            assert char == "│" or (char == "─" and way in (LEFT, RIGHT)), f"a line ends in {char!r}"
            ways = [way]
        for one in ways:
            step = (row + one[0], column + one[1], one)
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return found


def pipeline_of(reads: list[list[int]]) -> Pipeline:
    """Nodes by number; one that reads nothing is a source, and the last is a sink."""
    sources, steps = {}, {}
    for at, inputs in enumerate(reads):
        name = f"n{at}"
        if inputs:
            names = tuple(f"n{one}" for one in inputs)
            steps[name] = PythonStep(name=name, python="a.py:f", from_=names)
        else:
            sources[name] = TopicSource(name=name, topic=name)
    sinks = {"out": ConsoleSink(name="out", from_=f"n{len(reads) - 1}", console=1)}
    return Pipeline(name="p", sources=sources, steps=steps, sinks=sinks)


GRAPHS = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        *[
            st.lists(st.integers(0, at - 1), max_size=3, unique=True) if at else st.just([])
            for at in range(count)
        ]
    )
)


@settings(max_examples=150, deadline=None)
@given(GRAPHS)
def test_lines_lead_from_each_box_to_those_that_read_it(graph: tuple[list[int], ...]) -> None:
    reads = [list(one) for one in graph]
    picture = draw(pipeline_of(reads))
    wanted = {(f"n{one}", f"n{at}") for at, inputs in enumerate(reads) for one in inputs}
    assert edges_in(picture) == wanted | {(f"n{len(reads) - 1}", "out")}
    assert max(map(len, picture.splitlines())) <= 100


@pytest.mark.parametrize(("is_ascii", "name"), [(False, "orders.txt"), (True, "orders.ascii.txt")])
def test_the_picture_is_as_it_was(is_ascii: bool, name: str) -> None:
    pipeline = load(str(GOLDEN / "orders.yaml"), environment={})
    assert draw(pipeline, is_ascii=is_ascii) == (GOLDEN / name).read_text(encoding="utf-8")


def test_many_inputs_find_room_at_one_box() -> None:
    picture = draw(pipeline_of([[], [], [], [], [], [], [], [], [0, 1, 2, 3, 4, 5, 6, 7]]))
    assert {one for one, to in edges_in(picture) if to == "n8"} == {f"n{at}" for at in range(8)}


def test_long_and_wide_texts_stay_in_their_boxes() -> None:
    sql = (
        "select '日本語" + "x" * 200 + "' as a,\n" + "\n".join(f"  c{at}," for at in range(30)) + "\nd from a"
    )
    pipeline = Pipeline(
        name="p",
        sources={"a": TopicSource(name="a", topic="a")},
        steps={"s": SqlStep(name="s", sql=sql)},
        sinks={"out": ConsoleSink(name="out", from_="s", console=1)},
    )
    for is_ascii in (False, True):
        lines = draw(pipeline, is_ascii=is_ascii).splitlines()
        assert len(lines) < 40
        assert all(len(line) + sum(char in "日本語" for char in line) <= 100 for line in lines)
    box = [line for line in lines if line.lstrip().startswith("|") and line.rstrip().count("|") > 1]
    assert len({line.rindex("|") for line in box if "c1," in line or "xxx" in line}) == 1
    assert all(line.isascii() for line in lines)


def test_secrets_are_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nsources: {a: {topic: a, decode: {format: avro, registry: 'http://u:hidden@r', subject: s}}}\n"
        "sinks: {z: {from: a, jdbc: 'jdbc:x://u:hidden@h/d?password=hidden', into: t, password: hidden}}\n",
        encoding="utf-8",
    )
    assert "hidden" not in draw(load(str(path)))
