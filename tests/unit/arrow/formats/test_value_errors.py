"""Why a value does not become a row, in words about columns (P4): the readers are the real ones."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.avro.decoder import AvroDecoder
from flintmq.arrow.formats.column_builder import (
    ItemGetter,
    ScalarColumn,
    StructColumn,
    StructField,
    build_rows,
)
from flintmq.arrow.formats.json.decoder import JsonDecoder
from flintmq.arrow.formats.protobuf.decoder import ProtoDecoder
from flintmq.arrow.formats.protobuf.descriptors import compile_text
from flintmq.arrow.formats.value_errors import type_name, value_error

COLUMNS = (
    "id long not null, small tinyint, `a.b` int, name string, is_new boolean, at timestamp, local timestamp_ntz, "
    "day date, photo binary, price decimal(4, 2), ratio float, exact double, tags array<string>, "
    "counts map<string, int>, place struct<x: double, inner: struct<y: long NOT NULL>>, "
    "places array<struct<x: smallint>>"
)


def error_of(value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else value
    decoded = JsonDecoder(ddl.parse(COLUMNS)).decode(pa.array([data], pa.binary()))
    assert len(decoded.errors) == 1, value
    return decoded.errors[0].message


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ('{"id": 1.5}', "id: a floating-point number does not fit long"),
        ('{"id": "7"}', "id: a string does not fit long"),
        ('{"id": true}', "id: a boolean does not fit long"),
        ('{"id": null}', "id: it is null, and the column must not be null"),
        ("{}", "id: it is missing, and the column must not be null"),
        ('{"id": 9223372036854775808}', "id: the number is too large for long"),
        ('{"id": -9223372036854775809}', "id: the number is too small for long"),
        ('{"id": 1, "small": 128}', "small: the number is too large for byte"),
        ('{"id": 1, "a.b": "x"}', "a.b: a string does not fit int"),
        ('{"id": 1, "name": 5}', "name: an integer does not fit string"),
        ('{"id": 1, "is_new": "yes"}', "is_new: a string does not fit boolean"),
        (
            '{"id": 1, "at": "today"}',
            "at: the string does not fit timestamp: it is not a time in ISO 8601, such as 2026-01-31T12:00:00Z",
        ),
        ('{"id": 1, "at": 5}', "at: an integer does not fit timestamp"),
        (
            '{"id": 1, "local": "2026-01-31T12:00:00Z"}',
            "local: a time with a zone does not fit timestamp_ntz",
        ),
        (
            '{"id": 1, "day": "31.1."}',
            "day: the string does not fit date: it is not a date in ISO 8601, such as 2026-01-31",
        ),
        ('{"id": 1, "photo": "%%"}', "photo: the string does not fit binary: it is not base64"),
        ('{"id": 1, "price": "much"}', "price: the string does not fit decimal(4, 2): it is not a number"),
        ('{"id": 1, "price": 1.234}', "price: the number has more decimal places than decimal(4, 2)"),
        ('{"id": 1, "price": 12345.6}', "price: the number has more digits than decimal(4, 2)"),
        ('{"id": 1, "ratio": 1e39}', "ratio: the number is too large for float"),
        ('{"id": 1, "exact": 1e999}', "exact: the number is too large for double"),
        ('{"id": 1, "tags": "x"}', "tags: a string does not fit array"),
        ('{"id": 1, "tags": ["x", 5]}', "tags[1]: an integer does not fit string"),
        ('{"id": 1, "counts": []}', "counts: an array does not fit map"),
        ('{"id": 1, "counts": {"k": "v"}}', "counts[...]: a string does not fit int"),
        ('{"id": 1, "place": 5}', "place: an integer does not fit struct"),
        ('{"id": 1, "place": {"x": "far"}}', "place.x: a string does not fit double"),
        (
            '{"id": 1, "place": {"inner": {}}}',
            "place.inner.y: it is missing, and the column must not be null",
        ),
        ('{"id": 1, "places": [{"x": 99999}]}', "places[0].x: the number is too large for short"),
        ("[1]", "the value is an array, not a JSON object"),
        ("5", "the value is an integer, not a JSON object"),
        ('{"id": 1', "the JSON ends before it is complete"),
        ("", "the JSON ends before it is complete"),
        (b'{"id": 1, "name": "\xff"}', "the bytes are not UTF-8"),
    ],
)
def test_what_is_wrong_with_json(value: str | bytes, error: str) -> None:
    assert error_of(value) == error


def test_malformed_json_is_told_with_the_byte() -> None:
    assert error_of("no JSON at all").startswith("JSON is malformed: ")


AVRO = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "age", "type": ["null", "long"]}]}"""


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "the bytes end before the Avro record is complete"),
        (b"\x02\x08ab", "the bytes end before the Avro record is complete"),
        (b"\x02\x02\xff\x00", "the bytes are not UTF-8"),
        (b"\x02\x02a\x00more", "4 bytes are left after the Avro record"),
        (
            b"\x02\x02a\x08",
            "the bytes are not an Avro record of the schema: they choose a type of a union, or a symbol of an enum, "
            "that it does not have",
        ),
    ],
)
def test_what_is_wrong_with_avro(value: bytes, error: str) -> None:
    decoded = AvroDecoder(AVRO).decode(pa.array([value], pa.binary()))
    assert [one.message for one in decoded.errors] == [error]


def test_what_is_wrong_with_protobuf() -> None:
    files = compile_text(
        'syntax = "proto2"; package shop; message Order { required int64 id = 1; }', lambda _: None
    )
    decoded = ProtoDecoder(files, "shop.Order").decode(pa.array([b"\x0a\xff", b""], pa.binary()))
    assert [one.message for one in decoded.errors] == [
        "the bytes are not a Protobuf message of type shop.Order",
        "the message has no id, which shop.Order requires",
    ]


def test_a_value_that_only_the_column_refuses_is_told_with_its_column() -> None:
    inner = StructColumn((StructField("count", ItemGetter("count"), ScalarColumn(pa.int64())),))
    columns = StructColumn(
        (
            StructField("name", ItemGetter("name"), ScalarColumn(pa.string())),
            StructField("inner", ItemGetter("inner"), inner),
        )
    )
    good = {"name": "a", "inner": {"count": 1}}
    built = build_rows(columns, [good, {"name": "b", "inner": {"count": 1 << 70}}, good, {"name": "c"}])
    assert [(one.row, one.message.split(": ")[0]) for one in built.errors] == [
        (1, "inner.count"),
        (3, "inner"),
    ]
    assert built.errors[0].message == "inner.count: the number does not fit long"


def test_texts_that_no_rule_knows_stay_as_they_are_and_are_bounded() -> None:
    columns = pa.struct([("id", pa.int64())])
    assert value_error(struct.error("unpack requires 4 bytes"), columns) == "unpack requires 4 bytes"
    assert value_error(ValueError("Something new - at `$.id`"), columns) == "id: Something new"
    assert value_error(ValueError("Expected `int`, got `str` - at `$.gone[0]`"), columns) == (
        "gone[0]: a string does not fit the column"
    )
    assert value_error(ValueError(), columns) == "ValueError"
    assert len(value_error(ValueError("x" * 5000), columns)) == 501


def test_types_have_the_names_that_a_schema_gives_them() -> None:
    names = [type_name(one.type) for one in ddl.parse(COLUMNS)]
    assert ", ".join(names) == (
        "long, byte, int, string, boolean, timestamp, timestamp_ntz, date, binary, decimal(4, 2), float, double, "
        "array, map, struct, array"
    )
