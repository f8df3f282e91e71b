"""Filters of a query, turned into fewer topics, partitions and offsets to read. Pure.

Invariant: narrowing never leaves out a row that the filters let through. A filter that narrowing carries out to the
row is kept from Spark; one that is only approximated, such as a time, is given back to be evaluated again.

What a time can do: the first record at or after it is known to the broker, and all before that one are earlier. There
is no such bound at the other end, since times of records need not ascend; whoever knows that theirs do says so with
the option endingTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from flintmq.arrow.scan.narrowing import EVERYTHING, Narrowing
from flintmq.arrow.scan.offsets import OFFSET_MAX

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

_TESTS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda own, value: own == value,
    EqualNullSafe: lambda own, value: own == value,
    GreaterThan: lambda own, value: own > value,
    GreaterThanOrEqual: lambda own, value: own >= value,
    LessThan: lambda own, value: own < value,
    LessThanOrEqual: lambda own, value: own <= value,
    In: lambda own, value: own in value,
    StringStartsWith: lambda own, value: own.startswith(value),
    StringEndsWith: lambda own, value: own.endswith(value),
    StringContains: lambda own, value: value in own,
}
_BY_ORDER: Final = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_OF_TEXT: Final = (EqualTo, EqualNullSafe, In, StringStartsWith, StringEndsWith, StringContains)
_OF_NUMBERS: Final = (EqualTo, EqualNullSafe, In, *_BY_ORDER)


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What they leave to read, and those that Spark must evaluate on what is read."""
    narrowing, left = EVERYTHING, []
    for one in filters:
        if not (isinstance(one, IsNotNull) and _column(one) in _NEVER_NULL):
            narrowing, exact = _apply(narrowing, one)
            if not exact:
                left.append(one)
    return narrowing, left


def _apply(narrowing: Narrowing, one: Filter) -> tuple[Narrowing, bool]:
    """Narrowed by one filter, and whether that is all the filter says."""
    column = _column(one)
    if column == "topic" and _compares(one, _OF_TEXT, str):
        return replace(narrowing, topic_tests=(*narrowing.topic_tests, partial(_holds, one))), True
    if column == "partition" and _compares(one, _OF_NUMBERS, int):
        return replace(narrowing, partition_tests=(*narrowing.partition_tests, partial(_holds, one))), True
    if column == "offset" and not isinstance(one, Not) and _compares(one, _OF_NUMBERS, int):
        start, end, exact = _offsets(one)
        return replace(narrowing, start=max(narrowing.start, start), end=min(narrowing.end, end)), exact
    if column == "timestamp" and isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        since_ms = _milliseconds(one.value)
        if since_ms is not None and since_ms > (narrowing.since_ms or 0):
            return replace(narrowing, since_ms=since_ms), False
    return narrowing, False


def _offsets(one: Filter) -> tuple[int, int, bool]:
    """The first offset, the one behind the last, and whether all between are meant."""
    if isinstance(one, In):
        values = sorted(set(one.value))
        if not values:
            return 0, 0, True
        return values[0], values[-1] + 1, values[-1] - values[0] + 1 == len(values)
    assert isinstance(
        one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    )
    value: int = one.value
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return value + isinstance(one, GreaterThan), OFFSET_MAX, True
    if isinstance(one, LessThan | LessThanOrEqual):
        return 0, value + isinstance(one, LessThanOrEqual), True
    return value, value + 1, True


def _column(one: Filter) -> str:
    """Empty for a part of a column, which no filter here is about."""
    inner = one.child if isinstance(one, Not) else one
    path: Sequence[str] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _compares(one: Filter, kinds: tuple[type[Filter], ...], to: type) -> bool:
    inner = one.child if isinstance(one, Not) else one
    if not isinstance(inner, kinds):
        return False
    value = inner.value  # type: ignore[attr-defined]
    values = value if isinstance(inner, In) else (value,)
    # The very type: a bool is an int to Python, and must not pass for a number.
    return all(type(each) is to for each in values)


def _holds(one: Filter, own: str | int) -> bool:
    if isinstance(one, Not):
        return not _holds(one.child, own)
    return _TESTS[type(one)](own, one.value)  # type: ignore[attr-defined]


def _milliseconds(value: object) -> int | None:
    """Rounded down, so that nothing is missed; None for what is not a moment."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MILLISECOND
