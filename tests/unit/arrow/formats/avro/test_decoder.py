"""Avro records as rows, beside fastavro's own reader, which makes times and decimals itself."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.arrow.formats import SchemaError, open_decoder
from flintmq.arrow.formats.avro.decoder import AvroDecoder


def written(schema: Any, record: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), record)
    return file.getvalue()


def decoded(schema: Any, *values: bytes | None) -> tuple[list[Any], list[int]]:
    found = open_decoder("avro", schema=json.dumps(schema)).decode(pa.array(values, pa.binary()))
    found.rows.validate(full=True)
    return found.rows.to_pylist(), [one.row for one in found.errors]


_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "l", "type": ["null", "long"]},
        {"name": "d", "type": "double"},
        {"name": "b", "type": ["bytes", "null"]},
        {"name": "s", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {
            "name": "inner",
            "type": [
                "null",
                {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "boolean"}]},
            ],
        },
        {"name": "list", "type": {"type": "array", "items": ["null", "shop.Inner"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "cash", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
_INNER = st.none() | st.fixed_dictionaries({"x": st.booleans()})
_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_LONG = st.integers(-(2**63), 2**63 - 1)
_TIME = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
_MS = _TIME.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))
_ORDERS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | _LONG,
        "d": st.floats(allow_nan=False),
        "b": st.none() | st.binary(max_size=5),
        "s": _TEXT,
        "kind": st.sampled_from("AB"),
        "again": st.none() | st.sampled_from("AB"),
        "inner": _INNER,
        "list": st.lists(_INNER, max_size=3),
        "map": st.dictionaries(_TEXT, st.lists(_LONG, max_size=2), max_size=2),
        "fixed": st.binary(min_size=2, max_size=2),
        "day": st.dates(),
        "ms": st.none() | _MS.map(lambda time: time.replace(tzinfo=datetime.UTC)),
        "us": _TIME.map(lambda time: time.replace(tzinfo=datetime.UTC)),
        "local": _MS,
        "cash": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-2)),
        "id": st.uuids().map(str),
    }
)


@settings(deadline=None)
@given(st.lists(st.none() | _ORDERS, max_size=5))
def test_rows_are_what_was_written(orders: list[dict[str, Any] | None]) -> None:
    rows, errors = decoded(_SCHEMA, *(None if one is None else written(_SCHEMA, one) for one in orders))
    assert not errors
    assert rows == [None if one is None else {**one, "map": list(one["map"].items())} for one in orders]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=5), _ORDERS)
def test_nonsense_never_harms_its_neighbours(nonsense: list[bytes], order: dict[str, Any]) -> None:
    good = written(_SCHEMA, order)
    rows, errors = decoded(_SCHEMA, good, *nonsense, good)
    assert rows[0] == rows[-1]
    assert rows[0] is not None
    assert not {0, len(rows) - 1} & set(errors)
    assert all((rows[row] is None) == (row in errors) for row in range(len(rows)))


def _with(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def test_a_record_that_is_cut_or_has_bytes_behind_it_is_bad() -> None:
    schema = _with("string")
    good = written(schema, {"a": "word"})
    rows, errors = decoded(schema, good, good[:-1], good + b"\0", b"", b"\x04\xff\xff", good)
    assert errors == [1, 2, 3, 4]
    assert rows[5] == {"a": "word"}


def test_a_number_that_its_column_cannot_hold_is_bad() -> None:
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    rows, errors = decoded(
        _with(decimals), *(written(_with("bytes"), {"a": one}) for one in (b"\x7f", b"\x7f" * 5))
    )
    assert rows == [{"a": Decimal("1.27")}, None]
    assert errors == [1]
    too_late = written(_with("long"), {"a": 2**62})
    assert decoded(_with({"type": "long", "logicalType": "timestamp-millis"}), too_late)[1] == [0]
    assert decoded(_with("int"), too_late)[1] == [0]


def test_finer_times_are_cut_to_microseconds() -> None:
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    rows, _ = decoded(_with(nanos), written(_with("long"), {"a": -1}), written(_with("long"), {"a": 1999}))
    assert [row["a"].timestamp() for row in rows] == [-1e-6, 1e-6]


def test_a_union_of_several_types_is_a_struct_as_in_spark() -> None:
    named = {"type": "enum", "name": "E", "symbols": ["string"]}
    union = ["null", "string", named, "long", {"type": "map", "values": "int"}]
    values: list[Any] = [None, "string", ("E", "string"), 5, {"k": 1}]
    rows, errors = decoded(_with(union), *(written(_with(union), {"a": one}) for one in values))
    assert not errors
    empty = {"member0": None, "member1": None, "member2": None, "member3": None}
    assert rows == [
        {"a": None},
        {"a": {**empty, "member0": "string"}},
        {"a": {**empty, "member1": "string"}},
        {"a": {**empty, "member2": 5}},
        {"a": {**empty, "member3": [("k", 1)]}},
    ]


def test_numbers_of_one_kind_in_a_union_are_one_column() -> None:
    for union, kind in ((["int", "long", "null"], pa.int64()), (["float", "double"], pa.float64())):
        assert AvroDecoder(json.dumps(_with(union))).schema.field("a").type == kind


def test_what_holds_nothing_is_no_column() -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "null"}, {"name": "e", "type": empty}, {"name": "a", "type": "int"}],
    }
    rows, _ = decoded(schema, written(schema, {"n": None, "e": {}, "a": 1}))
    assert rows == [{"a": 1}]


def test_a_uuid_of_bytes_is_its_text() -> None:
    kind = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    one = uuid.UUID(int=7)
    plain = {"type": "fixed", "name": "U", "size": 16}
    assert decoded(_with(kind), written(_with(plain), {"a": one.bytes}))[0] == [{"a": str(one)}]


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        _with("null"),
        _with("Missing"),
        {"type": "record", "name": "R"},
        {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
        _with({"type": "array", "items": "null"}),
        _with({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
        _with(["int", {"type": "long", "logicalType": "timestamp-millis"}]),
    ],
)
def test_a_schema_without_fixed_columns_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        open_decoder("avro", schema=json.dumps(schema))


def test_no_json_is_no_schema() -> None:
    with pytest.raises(SchemaError, match="JSON"):
        open_decoder("avro", schema="{")


def test_a_decoder_travels_with_the_schemas_that_its_own_names() -> None:
    inner = json.dumps({"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]})
    decoder = AvroDecoder(json.dumps(_with("Inner")), {"inner": inner})
    values = pa.array([b"\x0e"], pa.binary())
    assert pickle.loads(pickle.dumps(decoder)).decode(values).rows.to_pylist() == [{"a": {"x": 7}}]
