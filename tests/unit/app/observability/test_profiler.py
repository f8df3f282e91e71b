"""Where time goes: samples of stacks, and the picture of them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flintmq.app.observability.flame_graph import draw
from flintmq.app.observability.loop_delay import PROBE_S, WINDOW_S, LoopDelay
from flintmq.app.observability.profiler import FOLDED, GRAPH, Profiler
from flintmq.testing.simulation import SimulatedClock, SimulatedLoop

_SVG = "{http://www.w3.org/2000/svg}"


def titles(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{_SVG}title")]


def test_widths_are_shares_of_the_whole() -> None:
    svg = draw({("main", "a", "b"): 600_000, ("main", "a"): 200_000, ("main", "c<d>"): 200_000}, title="t")
    assert titles(svg) == [
        "all: 1000.0 ms, 100.0%",
        "main: 1000.0 ms, 100.0%",
        "a: 800.0 ms, 80.0%",
        "b: 600.0 ms, 60.0%",
        "c<d>: 200.0 ms, 20.0%",
    ]
    rects = {
        group.attrib["data-n"]: float(group.find(f"{_SVG}rect").attrib["width"])  # type: ignore[union-attr]
        for group in ElementTree.fromstring(svg).iter(f"{_SVG}g")
    }
    assert rects["a"] == pytest.approx(rects["all"] * 0.8, rel=1e-3)


def test_nothing_at_all_can_be_drawn() -> None:
    assert titles(draw({}, title="nothing")) == []


def test_the_graph_needs_nothing_from_elsewhere() -> None:
    svg = draw({("a",): 1}, title="t")
    assert svg.count("http") == 1, "the namespace alone"


def spin(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(1000))


def test_a_busy_function_is_found_and_waiting_weighs_nothing(tmp_path: Path) -> None:
    over, written = threading.Event(), threading.Event()
    busy = threading.Thread(target=spin, args=(over,), name="busy")
    waiting = threading.Thread(target=over.wait, name="waiting")
    profiler = Profiler(str(tmp_path), interval_s=0.001)

    def write() -> None:
        Profiler.write(profiler)
        if any(stack[0] == "busy" for stack in profiler._weights):
            written.set()
        else:
            profiler.write_soon()

    profiler.write = write  # type: ignore[method-assign]
    for thread in (busy, waiting):
        thread.start()
    profiler.start()
    try:
        profiler.write_soon()
        assert written.wait(30)
    finally:
        over.set()
        for thread in (busy, waiting):
            thread.join()
        profiler.stop()
    folded = (tmp_path / FOLDED).read_text()
    assert ".spin " in folded or ".spin;" in folded
    weights = {line.split(";")[0]: 0 for line in folded.splitlines()}
    for line in folded.splitlines():
        weights[line.split(";")[0]] += int(line.rpartition(" ")[2])
    assert weights["busy"] > 10 * weights.get("waiting", 0)
    assert any("spin" in title for title in titles((tmp_path / GRAPH).read_text()))


def test_the_loop_is_late_by_the_time_it_was_kept() -> None:
    clock = SimulatedClock()
    with closing(SimulatedLoop(clock)) as loop:
        late = LoopDelay(timers=loop, clock=clock)
        late.start()
        loop.advance(2 * WINDOW_S)
        assert late.worst_s < 0.001
        # Something keeps the loop from looking at its timers.
        loop.call_soon(clock.advance, PROBE_S + 0.25)
        loop.advance(PROBE_S)
        assert late.worst_s == pytest.approx(0.25, abs=0.11)
        loop.advance(WINDOW_S)
        assert late.worst_s > 0.1, "the window before counts too"
        loop.advance(2 * WINDOW_S)
        assert late.worst_s < 0.001
        late.stop()
