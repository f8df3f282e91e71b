"""What filters on topic, partition, offset and timestamp leave to read, and what Spark must still evaluate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from flintmq.arrow.scan.narrowing import EVERYTHING, Narrowing
from flintmq.arrow.scan.offsets import OFFSET_MAX
from flintmq.spark.filters import narrow

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
MOMENT_MS = 1_767_323_045_678


def taken(*filters: Filter) -> Narrowing:
    """All filters are carried out to the row."""
    narrowing, left = narrow(filters)
    assert left == []
    return narrowing


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (EqualTo(OFFSET, 5), 5, 6),
        (EqualNullSafe(OFFSET, 5), 5, 6),
        (GreaterThan(OFFSET, 5), 6, OFFSET_MAX),
        (GreaterThanOrEqual(OFFSET, 5), 5, OFFSET_MAX),
        (LessThan(OFFSET, 5), 0, 5),
        (LessThanOrEqual(OFFSET, 5), 0, 6),
        (In(OFFSET, (7, 6, 5)), 5, 8),
        (In(OFFSET, ()), 0, 0),
    ],
)
def test_offsets_are_bounded_exactly(one: Filter, start: int, end: int) -> None:
    narrowing = taken(one)
    assert (narrowing.start, narrowing.end) == (start, end)


def test_bounds_meet() -> None:
    narrowing = taken(GreaterThan(OFFSET, 5), LessThan(OFFSET, 9), GreaterThanOrEqual(OFFSET, 2))
    assert (narrowing.start, narrowing.end) == (6, 9)
    assert not taken(GreaterThan(OFFSET, 9), LessThan(OFFSET, 5)).admits("t", 0)


def test_scattered_offsets_are_bounded_and_left_to_spark() -> None:
    one = In(OFFSET, (2, 9))
    narrowing, left = narrow([one])
    assert (narrowing.start, narrowing.end) == (2, 10)
    assert left == [one]


@pytest.mark.parametrize(
    ("one", "admitted"),
    [
        (EqualTo(PARTITION, 2), {2}),
        (Not(EqualTo(PARTITION, 2)), {0, 1, 3}),
        (In(PARTITION, (0, 3, 8)), {0, 3}),
        (Not(In(PARTITION, (0, 3))), {1, 2}),
        (GreaterThan(PARTITION, 1), {2, 3}),
        (LessThanOrEqual(PARTITION, 1), {0, 1}),
    ],
)
def test_partitions_are_chosen_exactly(one: Filter, admitted: set[int]) -> None:
    narrowing = taken(one)
    assert {index for index in range(4) if narrowing.admits("t", index)} == admitted


@pytest.mark.parametrize(
    ("one", "admitted"),
    [
        (EqualTo(TOPIC, "orders"), {"orders"}),
        (Not(EqualTo(TOPIC, "orders")), {"payments", "orders-old"}),
        (In(TOPIC, ("orders", "payments")), {"orders", "payments"}),
        (StringStartsWith(TOPIC, "orders"), {"orders", "orders-old"}),
        (StringEndsWith(TOPIC, "old"), {"orders-old"}),
        (StringContains(TOPIC, "ment"), {"payments"}),
    ],
)
def test_topics_are_chosen_exactly(one: Filter, admitted: set[str]) -> None:
    narrowing = taken(one)
    assert {name for name in ("orders", "payments", "orders-old") if narrowing.admits(name, 0)} == admitted


@pytest.mark.parametrize("kind", [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual])
def test_a_time_is_where_reading_starts_and_is_evaluated_again(kind: Any) -> None:
    one = kind(TIMESTAMP, MOMENT)
    narrowing, left = narrow([one, GreaterThan(TIMESTAMP, datetime(2020, 1, 1, tzinfo=UTC))])
    assert narrowing.since_ms == MOMENT_MS
    assert left[0] is one
    assert len(left) == 2


@pytest.mark.parametrize(
    "one",
    [
        LessThan(TIMESTAMP, MOMENT),
        Not(GreaterThan(TIMESTAMP, MOMENT)),
        GreaterThan(TIMESTAMP, datetime(1900, 1, 1, tzinfo=UTC)),
        GreaterThan(TIMESTAMP, None),
        Not(EqualTo(OFFSET, 5)),
        EqualTo(OFFSET, None),
        EqualTo(OFFSET, 5.5),
        In(PARTITION, (1, None)),
        EqualTo(PARTITION, True),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        IsNotNull(("value",)),
    ],
)
def test_what_says_nothing_about_what_to_read_is_left_to_spark(one: Filter) -> None:
    narrowing, left = narrow([one])
    assert narrowing == EVERYTHING
    assert left == [one]


def test_columns_that_are_never_null_need_no_test() -> None:
    never_null = ("topic", "partition", "offset", "timestamp", "timestampType")
    assert taken(*(IsNotNull((name,)) for name in never_null)) == EVERYTHING
