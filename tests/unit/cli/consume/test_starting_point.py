"""Where reading begins, as it is typed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flintmq.cli.consume.starting_point import StartingPoint, StartMode, parse_start, position
from flintmq.errors import ConfigurationError, RequestError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", StartingPoint(StartMode.BEGINNING)),
        ("END", StartingPoint(StartMode.END)),
        ("120", StartingPoint(StartMode.OFFSET, 120)),
        ("-10", StartingPoint(StartMode.BEFORE_END, 10)),
        ("-1h", StartingPoint(StartMode.TIME, NOW_MS - 3_600_000)),
        ("-1.5 h", StartingPoint(StartMode.TIME, NOW_MS - 5_400_000)),
        ("@17", StartingPoint(StartMode.TIME, 17)),
        ("2026-01-31T12:00:00Z", StartingPoint(StartMode.TIME, 1_769_860_800_000)),
        ("2026-01-31T13:00+01:00", StartingPoint(StartMode.TIME, 1_769_860_800_000)),
    ],
)
def test_where_to_begin_is_a_word_an_offset_a_distance_an_age_or_a_time(
    text: str, start: StartingPoint
) -> None:
    assert parse_start(text, NOW_MS) == start


def test_a_time_without_a_zone_is_local() -> None:
    expected = datetime(2026, 1, 31, 12, 0).astimezone(UTC).timestamp() * 1000
    assert parse_start("2026-01-31T12:00", NOW_MS).number == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-1y", "1h", "--1", "@x"])
def test_any_other_beginning_is_a_usage_error_that_lists_the_forms(text: str) -> None:
    with pytest.raises(ConfigurationError, match="beginning, end, an offset"):
        parse_start(text, NOW_MS)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (StartingPoint(StartMode.BEGINNING), 5),
        (StartingPoint(StartMode.END), 20),
        (StartingPoint(StartMode.BEFORE_END, 3), 17),
        (StartingPoint(StartMode.BEFORE_END, 100), 5),
        (StartingPoint(StartMode.OFFSET, 20), 20),
        (StartingPoint(StartMode.TIME, 1), 9),
    ],
)
def test_the_position_lies_within_what_the_partition_holds(start: StartingPoint, offset: int) -> None:
    assert position(start, 5, 20, at_time=9) == offset


def test_a_time_after_the_last_record_means_the_end() -> None:
    assert position(StartingPoint(StartMode.TIME, 1), 5, 20, at_time=None) == 20


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_that_is_not_there_is_refused(offset: int) -> None:
    with pytest.raises(RequestError, match="it holds 5 to 19"):
        position(StartingPoint(StartMode.OFFSET, offset), 5, 20, None)
