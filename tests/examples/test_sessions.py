"""examples/clickstream-sessions: its sessions are those that plain Python finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from support.pipeline.examples import Example

GAP = timedelta(minutes=30)
Session = tuple[str, datetime, datetime, int]


@pytest.mark.long
def test_sessions_are_those_of_a_recomputation(example: Callable[[str], Example]) -> None:
    sessions = example("clickstream-sessions")
    outcome = sessions.follow()
    clicks = [
        (one["user"], datetime.fromisoformat(one["at"]))
        for one in sessions.module("make_clicks").clicks(50, 1)
        if one["user"] != "night-watch"
    ]
    expected = recomputed(clicks)
    assert len(expected) > 100
    rows = sessions.delta("lake/sessions")
    found = [
        (one["user"], one["begins"].astimezone(UTC), one["ends"].astimezone(UTC), one["clicks"])
        for one in rows
    ]
    assert sorted(found) == sorted(expected)
    assert len(sessions.records("sessions")) == len(expected)
    # The line that is no JSON.
    assert outcome.figures.dead_letters == 1


def recomputed(clicks: list[tuple[str, datetime]]) -> list[Session]:
    made: list[Session] = []
    for user, at in sorted(clicks):
        if made and made[-1][0] == user and at < made[-1][2]:
            _, begins, _, count = made[-1]
            made[-1] = (user, begins, at + GAP, count + 1)
        else:
            made.append((user, at, at + GAP, 1))
    return made
