"""Which changes of a table's columns are taken, and which are refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flintmq.lake.tables.schema_evolution import check, merge, small_types
from flintmq.lake.tables.table import TableError


def one(kind: pa.DataType, name: str = "a") -> pa.Schema:
    return pa.schema([pa.field(name, kind)])


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), pa.int64()),
        ),
        (
            pa.struct([("x", pa.int32())]),
            pa.struct([("y", pa.string()), ("x", pa.int64())]),
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
        ),
    ],
    ids=str,
)
def test_types_become_wider(old: pa.DataType, new: pa.DataType, merged: pa.DataType) -> None:
    assert merge(one(old), one(new)).field("a").type == merged


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (pa.int64(), pa.float64(), "'a' is int64"),
        (pa.string(), pa.binary(), "'a' is string"),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), "'a' is decimal"),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.string())]), "'a.x' is int32"),
        (pa.list_(pa.int32()), pa.list_(pa.string()), "'a.element' is int32"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "'a' is timestamp"),
        (pa.list_(pa.int32()), pa.int32(), "'a' is list"),
    ],
    ids=str,
)
def test_others_are_refused_by_name_and_said_what_to_do(
    old: pa.DataType, new: pa.DataType, named: str
) -> None:
    with pytest.raises(TableError, match=f"{named}.*another"):
        merge(one(old), one(new))


def test_columns_come_at_the_end_may_be_null_and_none_goes() -> None:
    old = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    new = pa.schema([pa.field("c", pa.bool_(), nullable=False), pa.field("a", pa.int32())])
    merged = merge(old, new)
    assert merged.names == ["a", "b", "c"]
    assert [field.nullable for field in merged] == [True, True, True]


def test_a_column_that_differs_by_case_only_is_refused() -> None:
    with pytest.raises(TableError, match="by case only"):
        merge(one(pa.int32(), "City"), one(pa.int32(), "city"))


@pytest.mark.parametrize(
    "kind",
    [pa.uint64(), pa.int16(), pa.timestamp("ns", "UTC"), pa.time64("us"), pa.null(), pa.large_string()],
    ids=str,
)
def test_types_that_some_format_would_change_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(TableError, match=r"'a\.x'"):
        check(one(pa.struct([("x", kind)])))


def test_two_columns_of_a_name_are_refused() -> None:
    with pytest.raises(TableError, match="two columns 'a'"):
        check(pa.schema([("a", pa.int32()), ("a", pa.int64())]))


def test_large_types_become_small() -> None:
    large = pa.large_list(
        pa.struct([("x", pa.large_string()), ("y", pa.map_(pa.string_view(), pa.large_binary()))])
    )
    small = pa.list_(pa.struct([("x", pa.string()), ("y", pa.map_(pa.string(), pa.binary()))]))
    assert small_types(large) == small
