"""Tables, numbers and ranges as they are printed."""

from __future__ import annotations

import pytest

from flintmq.cli.common.output import (
    UNKNOWN_END,
    many,
    plain_table,
    ranges_fields,
    ranges_text,
    size,
    time_of,
)


def test_a_plain_table_is_aligned_with_numbers_on_the_right() -> None:
    assert plain_table(("name", "count"), [("a", "1"), ("long name", "1,000")], numbers=("count",)) == [
        "NAME       COUNT",
        "a              1",
        "long name  1,000",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (None, "-"),
    ],
)
def test_sizes_are_told_in_powers_of_1024(count: int | None, text: str) -> None:
    assert size(count) == text


def test_times_that_cannot_be_are_told_as_numbers() -> None:
    assert (time_of(-1), time_of(1 << 62)) == ("-", f"@{1 << 62}")


def test_counts_agree_with_their_nouns() -> None:
    assert (many(1, "record"), many(1200, "record")) == ("1 record", "1,200 records")


def test_ranges_are_told_shortly() -> None:
    assert ranges_text([], 0) == "-"
    assert ranges_text([(3, 4)], 1) == "offsets 3"
    assert ranges_text([(3, 6), (9, UNKNOWN_END)], 2) == "offsets 3–5, 9 and on"
    many = [(at, at + 1) for at in range(0, 20, 2)]
    assert ranges_text(many, 1200) == "offsets 0, 2, 4, 6, 8, and 1,195 more"
    assert ranges_fields([(3, 6), (9, UNKNOWN_END)]) == [
        {"first_offset": 3, "last_offset": 5}, {"first_offset": 9, "last_offset": None},
    ]  # fmt: skip
