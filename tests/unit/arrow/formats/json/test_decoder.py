"""JSON records as rows, beside Python's own reader of JSON."""

from __future__ import annotations

import datetime
import json
import math
import pickle
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.arrow.formats import SchemaError, open_decoder
from flintmq.arrow.formats.json.decoder import JsonDecoder


def rows_of(schema: str, *values: bytes | None) -> tuple[list[Any], list[int]]:
    decoded = open_decoder("json", schema=schema).decode(pa.array(values, pa.binary()))
    decoded.rows.validate(full=True)
    assert len(decoded.rows) == len(values)
    return decoded.rows.to_pylist(), [one.row for one in decoded.errors]


def one_of(schema: str, value: bytes) -> Any:
    rows, errors = rows_of(schema, value)
    assert not errors
    return rows[0]


_TEXT = st.text(st.characters(codec="utf-8"))
_INT = st.integers(-(2**63), 2**63 - 1)
_RECORD = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | _INT,
        "small": st.none() | st.integers(-128, 127),
        "name": st.none() | _TEXT,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "ok": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | _TEXT, max_size=3),
        "place": st.none()
        | st.fixed_dictionaries(
            {}, optional={"x": st.none() | _INT, "deep": st.lists(st.fixed_dictionaries({"q": _TEXT}))}
        ),
        "by name": st.none() | st.dictionaries(_TEXT, st.none() | _INT, max_size=3),
        "no column": st.recursive(st.none() | _TEXT | _INT, lambda inner: st.lists(inner), max_leaves=5),
    },
)
_SCHEMA = (
    "id long, small tinyint, name string, price double, ok boolean, tags array<string>, "
    "place struct<x: long, deep: array<struct<q: string>>>, `by name` map<string, long>"
)


def _expected(record: dict[str, Any]) -> dict[str, Any]:
    columns = ("id", "small", "name", "price", "ok", "tags", "place", "by name")
    row = {name: record.get(name) for name in columns}
    if row["place"] is not None:
        row["place"] = {name: row["place"].get(name) for name in ("x", "deep")}
    if row["by name"] is not None:
        row["by name"] = list(row["by name"].items())
    return row


@settings(deadline=None)
@given(st.lists(st.none() | _RECORD, max_size=20), st.sampled_from([None, 1]), st.booleans())
def test_rows_are_what_pythons_json_reads(
    records: list[dict[str, Any] | None], indent: int | None, ensure_ascii: bool
) -> None:
    values = [
        None if one is None else json.dumps(one, indent=indent, ensure_ascii=ensure_ascii).encode()
        for one in records
    ]
    rows, errors = rows_of(_SCHEMA, *values)
    assert not errors
    assert rows == [None if one is None else _expected(json.loads(json.dumps(one))) for one in records]


_GOOD = b'{"id": 1, "name": "a"}'


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"null",
        b"7",
        b"[]",
        b'"id"',
        b"{",
        b'{"id": 1',
        b'{"id": 1}}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": 1} x',
        b'{"id": 1,}',
        b'{"id": 01}',
        b'{"id": NaN}',
        b'{"price": NaN}',
        b'{"price": Infinity}',
        b'{"price": 1e999}',
        b'{"id": 1.0}',
        b'{"id": 1e2}',
        b'{"id": "1"}',
        b'{"id": true}',
        b'{"id": 9223372036854775808}',
        b'{"id": -9223372036854775809}',
        b'{"id": 123456789012345678901234567890}',
        b'{"name": 1}',
        b'{"name": "a\nb"}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b"{'id': 1}",
        b'\xef\xbb\xbf{"id": 1}',
        b'{"id":' + b"[" * 100_000,
    ],
)
def test_a_bad_record_is_bad_alone(bad: bytes) -> None:
    rows, errors = rows_of("id long, name string, price double", _GOOD, bad, None, _GOOD)
    assert errors == [1]
    assert [row and row["id"] for row in rows] == [1, None, None, 1]


def test_halves_of_records_do_not_become_one() -> None:
    rows, errors = rows_of("id long", b'{"id": 1', b"}", b'{"id"', b": 2}", b"", b'{"id": 3}{"id": 4}')
    assert errors == list(range(6))
    assert rows == [None] * 6


def test_newlines_between_members_are_no_end_of_a_record() -> None:
    assert one_of("id long, name string", b'\n{\r\n"id"\t:\n1,"name":\n"a\\nb"}\n') == {
        "id": 1,
        "name": "a\nb",
    }


def test_the_last_of_members_with_one_name_counts_as_in_python() -> None:
    value = b'{"id": 1, "id": 2, "m": {"a": 1, "a": 2}}'
    assert one_of("id long, m map<string, long>", value) == {"id": json.loads(value)["id"], "m": [("a", 2)]}


def test_numbers_stay_within_their_columns() -> None:
    schema = "b tinyint, s smallint, i int, f float"
    assert one_of(schema, b'{"b": -128, "s": 32767, "i": -2147483648, "f": 3e38}')["b"] == -128
    _, errors = rows_of(schema, b'{"b": 128}', b'{"s": -32769}', b'{"i": 2147483648}', b'{"f": 3.5e38}')
    assert errors == [0, 1, 2, 3]
    assert math.isclose(one_of(schema, b'{"f": 0.1}')["f"], 0.1, rel_tol=1e-6)


def test_decimals_are_exact_or_refused() -> None:
    values = [
        b'{"d": 0.10}',
        b'{"d": "12.34"}',
        b'{"d": 1e3}',
        b'{"d": 0.105}',
        b'{"d": 100000}',
        b'{"d": "NaN"}',
    ]
    rows, errors = rows_of("d decimal(6, 2)", *values)
    assert errors == [3, 4, 5]
    assert [row["d"] for row in rows[:3]] == [Decimal("0.10"), Decimal("12.34"), Decimal("1000.00")]


def test_times_have_a_zone_or_are_in_utc() -> None:
    values = [
        b'{"t": "2026-11-15T12:00:00Z"}',
        b'{"t": "2026-11-15 14:00:00+02:00"}',
        b'{"t": "2026-11-15T12:00:00"}',
        b'{"t": "yesterday"}',
        b'{"t": 5}',
    ]
    rows, errors = rows_of("t timestamp", *values)
    assert errors == [3, 4]
    noon = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
    assert [row["t"] for row in rows[:3]] == [noon] * 3
    rows, errors = rows_of("t timestamp_ntz, d date", values[2], values[0], b'{"d": "2026-11-15"}')
    assert errors == [1]
    assert rows[0]["t"] == datetime.datetime(2026, 11, 15, 12)
    assert rows[2]["d"] == datetime.date(2026, 11, 15)


def test_bytes_are_base64() -> None:
    rows, errors = rows_of("b binary", b'{"b": "aGk="}', b'{"b": "aGk"}')
    assert rows[0] == {"b": b"hi"}
    assert errors == [1]


def test_json_is_kept_as_its_text() -> None:
    value = b'{"j": {"a": [1, 2.50, "x"]}, "l": [null, 1, "t"]}'
    assert one_of("j json, l array<json>", value) == {"j": '{"a": [1, 2.50, "x"]}', "l": [None, "1", '"t"']}
    rows, errors = rows_of("j json", b'{"j": null}', b"{}", b'{"j": "\xff"}')
    assert rows == [{"j": None}, {"j": None}, None]
    assert errors == [2]


def test_what_may_not_be_null_must_be_there() -> None:
    schema = "id long NOT NULL, place struct<x: long NOT NULL>"
    values = [
        b'{"id": 1}',
        b"{}",
        b'{"id": null}',
        b'{"id": 2, "place": {}}',
        b'{"id": 3, "place": {"x": 1}}',
    ]
    rows, errors = rows_of(schema, *values)
    assert errors == [1, 2, 3]
    assert rows[4] == {"id": 3, "place": {"x": 1}}
    assert open_decoder("json", schema=schema).schema.field("id").nullable


def test_an_error_says_where() -> None:
    decoded = open_decoder("json", schema="place struct<x: long>").decode(
        pa.array([b'{"place": {"x": "far"}}'], pa.binary())
    )
    assert "place.x: " in decoded.errors[0].message


def test_a_decoder_travels() -> None:
    decoder = open_decoder("json", schema="id long NOT NULL, m map<string, json>")
    other = pickle.loads(pickle.dumps(decoder))
    values = pa.array([b'{"id": 1, "m": {"a": [1]}}', b"{}"], pa.binary())
    assert decoder.decode(values) == other.decode(values)
    assert decoder.schema == other.schema


def test_chunks_and_nothing_at_all() -> None:
    decoder = open_decoder("json", schema="id long")
    assert len(decoder.decode(pa.array([], pa.binary())).rows) == 0
    chunked = pa.chunked_array([pa.array([_GOOD, b"x"]), pa.array([None, _GOOD], pa.binary())])
    decoded = decoder.decode(chunked)
    assert decoded.rows.to_pylist() == [{"id": 1}, None, None, {"id": 1}]
    assert [one.row for one in decoded.errors] == [1]


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(SchemaError, match="columns"):
        JsonDecoder(pa.schema([]))
    with pytest.raises(SchemaError, match="duration"):
        JsonDecoder(pa.schema([("d", pa.duration("us"))]))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": 5}', "a `type` that is no name and no list of names: 5"),
        ('{"properties": {"a": {"type": [{}]}}}', "a `type` that is no name"),
        ('{"type": "object", "properties": 5}', "`properties` without names: 5"),
        ('{"properties": {"a": {"type": "string"}}, "required": 5}', "`required`, and no list in it: 5"),
    ],
)
def test_a_json_schema_that_is_none_is_told(schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(words)):
        open_decoder("json", schema=schema)
