"""Durations as people type them."""

from __future__ import annotations

import re

import pytest

from flintmq.settings.durations import duration_words, normalized_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms", "words"),
    [
        ("10 minutes", 600_000, "10 minutes"),
        ("1 hour 30 seconds", 3_630_000, "3630 seconds"),
        ("90s", 90_000, "90 seconds"),
        ("1D", 86_400_000, "1 day"),
        ("250 ms", 250, "250 milliseconds"),
        ("120 min", 7_200_000, "2 hours"),
        ("1.5 hours", 5_400_000, "90 minutes"),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, duration_ms: int, words: str) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert duration_words(duration_ms) == words
    assert parse_duration_ms(words) == duration_ms


@pytest.mark.parametrize("text", ["10s", "5m", "1h", "2d", "10 min", "1W", "250ms", "1 hour 30 seconds"])
def test_spark_is_given_words_that_it_knows(text: str) -> None:
    words = normalized_duration(text)
    assert re.fullmatch(r"\d+ (week|day|hour|minute|second|millisecond)s?", words)
    assert parse_duration_ms(words) == parse_duration_ms(text)


@pytest.mark.parametrize(
    "text", ["", "10", "minutes", "1 month", "-1 second", "5 6", "1 hour 30", "10 minutes ago"]
)
def test_what_is_no_duration_is_not_read_as_one(text: str) -> None:
    assert parse_duration_ms(text) is None


def test_a_number_without_a_unit_takes_the_default_one() -> None:
    assert parse_duration_ms("250", default_unit="ms") == 250
    assert parse_duration_ms("5 6", default_unit="ms") is None
    assert parse_duration_ms("2m", default_unit="ms") == 120_000
