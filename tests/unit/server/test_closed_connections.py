"""Log lines about bad clients: they name the peer, and are few however many connections it opens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.server.closed_connections import KEYS_MAX, LOGGED_MAX, WINDOW_S, ClosedConnectionLog, CloseReason
from flintmq.testing.simulation import SimulatedClock, SimulatedLoop

LOGGER = logging.getLogger("flintmq.server.connection")


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        yield loop


def test_the_first_few_are_told_and_the_rest_in_one_line(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = ClosedConnectionLog(loop, LOGGER)
    for number in range(233):
        refusals.note("10.0.0.9", f"10.0.0.9:{number}", CloseReason.FRAME, "this is HTTP")
    assert len(caplog.messages) == LOGGED_MAX
    assert caplog.messages[0] == "closing the connection of 10.0.0.9:0: this is HTTP"
    loop.advance(WINDOW_S)
    assert caplog.messages[LOGGED_MAX:] == [
        f"…and {233 - LOGGED_MAX} more connections of 10.0.0.9 closed in the last {WINDOW_S:.0f} s, "
        "the last one because: this is HTTP"
    ]
    assert caplog.records[-1].__dict__["peer"] == "10.0.0.9"


def test_hosts_and_reasons_are_told_apart(loop: SimulatedLoop, caplog: pytest.LogCaptureFixture) -> None:
    refusals = ClosedConnectionLog(loop, LOGGER)
    for _ in range(LOGGED_MAX + 1):
        refusals.note("a", "a:1", CloseReason.FRAME, "x")
    refusals.note("b", "b:1", CloseReason.FRAME, "x")
    refusals.note("a", "a:1", CloseReason.LIMIT, "x")
    refusals.note("a", "a:1", CloseReason.FRAME, "another reason")
    assert len(caplog.messages) == LOGGED_MAX + 3


def test_reasons_that_differ_in_numbers_are_the_same(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = ClosedConnectionLog(loop, LOGGER)
    for size in range(-50, 50):
        refusals.note("a", "a:1", CloseReason.FRAME, f"a frame of {size} bytes")
    assert len(caplog.messages) == LOGGED_MAX


def test_a_new_window_begins_with_the_next_refusal(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = ClosedConnectionLog(loop, LOGGER)
    for _ in range(2):
        for _ in range(LOGGED_MAX):
            refusals.note("a", "a:1", CloseReason.FRAME, "x")
        loop.advance(WINDOW_S)
    assert len(caplog.messages) == 2 * LOGGED_MAX, "nothing was held back, so there is nothing to sum up"


def test_hosts_without_end_take_no_memory_without_end(
    loop: SimulatedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = ClosedConnectionLog(loop, LOGGER)
    for number in range(KEYS_MAX + 500):
        refusals.note(f"host-{number}", f"host-{number}:1", CloseReason.FRAME, "x")
    assert len(refusals._tallies) <= KEYS_MAX + len(CloseReason)
    loop.advance(WINDOW_S)
    assert f"…and {500 - LOGGED_MAX} more connections of other hosts" in caplog.messages[-1]
