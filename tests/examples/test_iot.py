"""examples/iot-rollups: minutes that can no longer change, of all readings but those that are too late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from support.pipeline.examples import Example

MINUTE = timedelta(minutes=1)
DELAY = timedelta(minutes=2)


def test_minutes_have_all_readings_but_those_that_are_too_late(example: Callable[[str], Example]) -> None:
    rollups = example("iot-rollups")
    make = rollups.module("make_readings")
    first = make.readings(10, 60, 1)
    outcome = rollups.follow(0)
    assert found_in(rollups) == recomputed(first)
    broken = sum(one["celsius"] > 120 for one in first)
    assert outcome.figures.dead_letters == broken > 0

    rollups.follow(1)
    in_time = [one for one in make.later(10, 60, 1) if one["celsius"] != 0.0]
    found = found_in(rollups)
    assert found == recomputed(first + in_time)
    assert min(row[1] for row in found.values()) > 0.0


def found_in(rollups: Example) -> dict[tuple[str, datetime], tuple[int, float, float]]:
    rows = rollups.parquet("lake/rollups")
    found = {
        (one["device"], one["minute"].astimezone(UTC)): (one["readings"], one["coldest"], one["warmest"])
        for one in rows
    }
    assert len(found) == len(rows)
    return found


def recomputed(readings: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, float, float]]:
    by_window: dict[tuple[str, datetime], list[float]] = {}
    for one in readings:
        if one["celsius"] <= 120:
            at = datetime.fromisoformat(one["at"])
            by_window.setdefault((one["device"], at.replace(second=0)), []).append(one["celsius"])
    closed = max(datetime.fromisoformat(one["at"]) for one in readings) - DELAY
    return {
        key: (len(values), min(values), max(values))
        for key, values in by_window.items()
        if key[1] + MINUTE <= closed
    }
