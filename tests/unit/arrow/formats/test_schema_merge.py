"""Schemas as DDL, as JSON Schema, inferred from records, and made one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.arrow.formats import SchemaError, ddl
from flintmq.arrow.formats.json import schema as json_schema
from flintmq.arrow.formats.json.decoder import JsonDecoder
from flintmq.arrow.formats.json.inference import infer
from flintmq.arrow.formats.schema_merge import JSON_TEXT, conform, fits, plain, unify

_LEAVES = st.sampled_from(
    [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.decimal128(10, 2),
        pa.decimal128(38, 0),
        JSON_TEXT,
    ]
)
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


def _fields(types: st.SearchStrategy[Any]) -> st.SearchStrategy[list[pa.Field]]:
    one = st.builds(pa.field, _NAMES, types, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda field: field.name)


_TYPES = st.recursive(
    _LEAVES,
    lambda inner: (
        inner.map(pa.list_) | inner.map(lambda one: pa.map_(pa.string(), one)) | _fields(inner).map(pa.struct)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(_fields(_TYPES).map(pa.schema))
def test_what_is_written_as_ddl_is_read_again(schema: pa.Schema) -> None:
    assert ddl.parse(ddl.write(schema)).equals(schema)


def test_ddl_as_spark_has_it() -> None:
    assert ddl.parse("id BIGINT, a: int COMMENT 'it''s', n numeric(5), v varchar(3)").equals(
        pa.schema([("id", pa.int64()), ("a", pa.int32()), ("n", pa.decimal128(5, 0)), ("v", pa.string())])
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id long,",
        "id long name string",
        "id wide",
        "id array<long",
        "id map<long, string>",
        "id decimal(39, 1)",
        "id decimal(3, 4)",
        "id long, id string",
        "id long; x",
        "a " + "array<" * 200 + "int" + ">" * 200,
    ],
)
def test_no_ddl_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        ddl.parse(text)


def test_a_json_schema_gives_columns() -> None:
    text = json.dumps(
        {
            "type": "object",
            "required": ["id", "maybe"],
            "properties": {
                "id": {"type": "integer"},
                "maybe": {"type": ["null", "number"]},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "place": {"$ref": "#/$defs/place"},
                "by_name": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "either": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
                "mixed": {"type": ["string", "integer"]},
                "any": {},
                "other": {"$ref": "other.json"},
            },
            "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
        }
    )
    other = {"$ref": "#/$defs/place", "$defs": {"place": {"type": "string"}}}
    found = json_schema.parse(text, {"other.json": json.dumps(other)})
    assert ddl.write(found) == (
        "id bigint NOT NULL, maybe double, at timestamp, tags array<string>, place struct<x: double>, "
        "by_name map<string, boolean>, either bigint, mixed json, any json, other string"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"type": "string"}',
        '{"type": "object"}',
        '{"properties": {"a": {"$ref": "#/nowhere"}}}',
        '{"properties": {"a": {"$ref": "#"}}}',
        '{"$ref": "#"}',
    ],
)
def test_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        json_schema.parse(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), _JSON, min_size=1, max_size=3), min_size=1, max_size=8)
)
def test_every_record_of_the_sample_fits_what_is_inferred(records: list[dict[str, Any]]) -> None:
    values = pa.array([json.dumps(one).encode() for one in records], pa.binary())
    schema = infer(values)
    decoded = JsonDecoder(schema).decode(values)
    assert not decoded.errors
    decoded.rows.validate(full=True)
    assert set(schema.names) == {name for one in records for name in one}


def test_inference_names_what_varies_as_text() -> None:
    values = [b'{"a": 1, "b": 1, "n": null, "e": {}, "l": []}', b"nonsense", None, b'{"a": 1.5, "b": "x"}']
    assert ddl.write(infer(pa.array(values, pa.binary()))) == "a double, b json, n json, e json, l json"
    with pytest.raises(SchemaError, match="inferred"):
        infer(pa.array([b"[1]", b"x"]))


def test_schemas_become_one_by_adding_and_widening() -> None:
    first = ddl.parse("a int, s struct<x: float, y: string>, l array<smallint>, d decimal(5, 2)")
    second = ddl.parse("b string, a long, s struct<z: int, x: double>, l array<int>, d decimal(9, 2)")
    both = unify(first, second)
    assert ddl.write(both) == (
        "a bigint, s struct<x: double, y: string, z: int>, l array<int>, d decimal(9, 2), b string"
    )
    assert fits(first, both)
    assert fits(second, both)
    assert not fits(both, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a int", "a string"),
        ("a long", "a double"),
        ("a decimal(5, 2)", "a decimal(5, 3)"),
        ("a date", "a timestamp"),
    ],
)
def test_what_no_type_holds_is_refused_with_its_column(first: str, second: str) -> None:
    with pytest.raises(SchemaError, match=r"s\.a"):
        unify(ddl.parse(f"s struct<{first}>"), ddl.parse(f"s struct<{second}>"))


def test_rows_keep_their_values_in_a_wider_schema() -> None:
    narrow = ddl.parse("a int, s struct<x: float>, l array<struct<q: int>>, m map<string, int>")
    wide = unify(
        narrow,
        ddl.parse(
            "a long, b string, s struct<y: int>, l array<struct<q: long, r: int>>, m map<string, long>"
        ),
    )
    rows = [
        {"a": 1, "s": {"x": 0.5}, "l": [{"q": 1}, None], "m": [("k", 1)]},
        None,
        {"a": None, "s": None, "l": None, "m": None},
        {"a": 3, "s": {"x": None}, "l": [], "m": []},
    ]
    array = pa.array(rows, pa.struct(list(narrow)))
    expected: list[dict[str, Any] | None] = [
        {"a": 1, "s": {"x": 0.5, "y": None}, "l": [{"q": 1, "r": None}, None], "m": [("k", 1)], "b": None},
        None,
        {"a": None, "s": None, "l": None, "m": None, "b": None},
        {"a": 3, "s": {"x": None, "y": None}, "l": [], "m": [], "b": None},
    ]
    for start in range(4):
        conformed = conform(array.slice(start), pa.struct(list(wide)))
        conformed.validate(full=True)
        assert [_in_order(row) for row in conformed.to_pylist()] == [
            _in_order(row) for row in expected[start:]
        ]


def _in_order(row: dict[str, Any] | None) -> Any:
    return None if row is None else sorted(row.items())


def test_tables_see_plain_columns() -> None:
    shown = plain(ddl.parse("a long NOT NULL, j array<json>"))
    assert shown.equals(pa.schema([("a", pa.int64()), ("j", pa.list_(pa.string()))]))
