"""Protobuf messages as rows, and `.proto` texts as descriptors, beside Protobuf's own library."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.arrow.formats import SchemaError, open_decoder
from flintmq.arrow.formats.extra_fields import Extras
from flintmq.arrow.formats.protobuf.decoder import ProtoDecoder
from flintmq.arrow.formats.protobuf.descriptors import compile_text
from flintmq.arrow.formats.protobuf.parser import parse

ORDER = """
// Comments { are ; passed over
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "nobody/has/options.proto";
option java_package = "x";
option (nobody.knows) = { a: 1, b: "};" };
message Order {
  option deprecated = true;
  reserved 100 to 200, 300; reserved "old";
  int32 id = 1 [deprecated = true, json_name = "ID"];
  optional string note = 0x2;
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  map<int64, double> by_number = 5;
  message Line {
    enum Kind { option allow_alias = true; NONE = 0; NOTHING = 0; SOME = 1 [deprecated = true]; LESS = -1; }
    Kind kind = 1;
    optional bool optional = 2;
  }
  oneof choice { uint64 number = 6; bytes raw = 7; Line line = 8; }
  google.protobuf.Timestamp at = 9;
  google.protobuf.UInt64Value wrapped = 10;
  google.protobuf.Struct free = 11;
  repeated sint32 numbers = 12 [packed = false];
  Line last = 13;;
  uint32 unsigned = 14;
  float share = 15;
  repeated Line.Kind kinds = 16;
  Nothing nothing = 17;
}
message Nothing {}
service Shop { rpc Buy(Order) returns (stream Order) { option (x) = {}; } rpc Sell(Order) returns (Order); }
"""
_COLUMNS = [
    ("id", pa.int32()),
    ("note", pa.string()),
    ("lines", pa.list_(pa.struct([("kind", pa.string()), ("optional", pa.bool_())]))),
    ("by_name", pa.map_(pa.string(), pa.struct([("kind", pa.string()), ("optional", pa.bool_())]))),
    ("by_number", pa.map_(pa.int64(), pa.float64())),
    ("number", pa.decimal128(20, 0)),
    ("raw", pa.binary()),
    ("line", pa.struct([("kind", pa.string()), ("optional", pa.bool_())])),
    ("at", pa.timestamp("us", "UTC")),
    ("wrapped", pa.decimal128(20, 0)),
    ("free", pa.string()),
    ("numbers", pa.list_(pa.int32())),
    ("last", pa.struct([("kind", pa.string()), ("optional", pa.bool_())])),
    ("unsigned", pa.int64()),
    ("share", pa.float32()),
    ("kinds", pa.list_(pa.string())),
]


@cache
def message_class(text: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(compile_text(text, lambda _: None)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decoded(text: str, *values: bytes | None, message: str | None = None) -> tuple[list[Any], list[int]]:
    found = open_decoder("protobuf", schema=text, message=message).decode(pa.array(values, pa.binary()))
    found.rows.validate(full=True)
    return found.rows.to_pylist(), [one.row for one in found.errors]


def test_a_proto_text_gives_columns() -> None:
    assert open_decoder("protobuf", schema=ORDER).schema.equals(pa.schema(_COLUMNS))


_LINES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["NONE", "SOME", "LESS"])}, optional={"optional": st.booleans()}
)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_UNSIGNED = st.integers(0, 2**64 - 1)
_ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**31), 2**31 - 1),
        "lines": st.lists(_LINES, max_size=3),
        "by_name": st.dictionaries(_TEXT, _LINES, max_size=3),
        "by_number": st.dictionaries(
            st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), max_size=3
        ),
        "numbers": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "unsigned": st.integers(0, 2**32 - 1),
        "share": st.floats(width=32, allow_nan=False),
        "kinds": st.lists(st.sampled_from(["NONE", "SOME", "LESS"]), max_size=3),
    },
    optional={
        "note": _TEXT,
        "at": st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)),
        "wrapped": _UNSIGNED,
        "last": _LINES,
        "choice": st.one_of(
            st.tuples(st.just("number"), _UNSIGNED),
            st.tuples(st.just("raw"), st.binary(max_size=5)),
            st.tuples(st.just("line"), _LINES),
        ),
    },
)


def _message(kind: Any, order: dict[str, Any]) -> Any:
    values = dict(order)
    if choice := values.pop("choice", None):
        values[choice[0]] = choice[1]
    if (wrapped := values.pop("wrapped", None)) is not None:
        values["wrapped"] = {"value": wrapped}
    return kind(**values)


def _line(line: dict[str, Any] | None) -> Any:
    return None if line is None else {"kind": line["kind"], "optional": line.get("optional")}


def _expected(order: dict[str, Any]) -> dict[str, Any]:
    name, value = order.get("choice", (None, None))
    at = order.get("at")
    return {
        **order,
        "note": order.get("note"),
        "lines": [_line(one) for one in order["lines"]],
        "by_name": {key: _line(one) for key, one in order["by_name"].items()},
        "number": Decimal(value) if name == "number" else None,
        "raw": value if name == "raw" else None,
        "line": _line(value) if name == "line" else None,
        "at": None if at is None else at.replace(tzinfo=datetime.UTC),
        "wrapped": order.get("wrapped"),
        "free": None,
        "last": _line(order.get("last")),
    }


@settings(deadline=None)
@given(st.lists(st.none() | _ORDERS, max_size=5))
def test_rows_are_what_was_set(orders: list[dict[str, Any] | None]) -> None:
    kind = message_class(ORDER, "shop.Order")
    values = [None if one is None else _message(kind, one).SerializeToString() for one in orders]
    rows, errors = decoded(ORDER, *values)
    assert not errors
    for row in rows:
        if row is not None:
            row["by_name"], row["by_number"] = dict(row["by_name"]), dict(row["by_number"])
    expected = [None if one is None else _expected(one) for one in orders]
    for one in expected:
        if one is not None:
            one.pop("choice", None)
    assert rows == expected


def test_free_structures_are_json() -> None:
    kind = message_class(ORDER, "shop.Order")
    message = json_format.ParseDict({"free": {"b": [1, None], "a": "x"}}, kind())
    rows, _ = decoded(ORDER, message.SerializeToString())
    assert json.loads(rows[0]["free"]) == {"a": "x", "b": [1, None]}


def test_an_unknown_enum_is_its_number() -> None:
    assert decoded(ORDER, b"\x6a\x02\x08\x07")[0][0]["last"] == {"kind": "7", "optional": None}


def test_a_bad_message_is_bad_alone() -> None:
    good = b"\x08\x07"
    rows, errors = decoded(ORDER, good, b"\xff", b"\x08", b"\x12\x02\xff\xff", b"", good)
    assert errors == [1, 2, 3]
    assert [row and row["id"] for row in rows] == [7, None, None, None, 0, 7]


def test_proto2_has_required_fields_groups_and_presence() -> None:
    text = """
        syntax = "proto2"; package d;
        message Dep { required int32 a = 1; optional string s = 2 [default = "x\\"];"];
          repeated group Part = 3 { optional int32 q = 1; } extensions 10 to max;
          optional double d = 5 [default = -1.5e3]; }
        extend Dep { optional int32 ext = 10; }
    """
    rows, errors = decoded(text, b"\x08\x01\x1b\x08\x05\x1c", b"", b"\x08\x02\x12\x01\xff")
    assert rows[0] == {"a": 1, "s": None, "part": [{"q": 5}], "d": None}
    assert errors == [1, 2]


def test_the_message_is_chosen_by_name() -> None:
    assert decoded(ORDER, b"\x08\x01", message="shop.Order.Line")[0] == [{"kind": "SOME", "optional": None}]
    with pytest.raises(SchemaError, match=r"shop\.Order\.Line"):
        open_decoder("protobuf", schema=ORDER, message="Nobody")


@pytest.mark.parametrize(
    "text",
    [
        "",
        'syntax = "proto4";',
        'edition = "2023"; message M { int32 a = 1; }',
        "message M { int32 a = 1 }",
        "message M { int32 a; }",
        "message M { int32 a = x; }",
        "message M { int32 a = 1;",
        "message M { string a = 1 [b; }",
        "message M { = }",
        "message M { Missing a = 1; }",
        "message M { int32 a = 99999999999; }",
        "message M {}",
        "message M { M inner = 1; }",
        "message M { int32 a = 1; } $",
        "message M { " * 100,
        "enum E { A = 0; }",
    ],
)
def test_no_proto_text_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        open_decoder("protobuf", schema=text if "syntax" in text else 'syntax = "proto3"; ' + text)


def test_an_error_in_a_proto_text_names_the_line() -> None:
    with pytest.raises(SchemaError, match="line 3"):
        parse("\nmessage M {\n int32 = 1;\n}", name="m.proto")


_IDENTIFIERS = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
_SCALARS = st.sampled_from(["int32", "sint64", "fixed64", "bool", "string", "bytes", "double"])


@settings(deadline=None)
@given(
    st.dictionaries(
        _IDENTIFIERS, st.tuples(_SCALARS, st.sampled_from(["", "repeated", "optional"])), min_size=1
    )
)
def test_a_printed_descriptor_is_read_again(fields: dict[str, tuple[str, str]]) -> None:
    lines = [f"{label} {kind} {name} = {at};" for at, (name, (kind, label)) in enumerate(fields.items(), 1)]
    file = parse('syntax = "proto3"; message M {' + "\n".join(lines) + "}", name="m.proto")
    assert [(one.name, one.number) for one in file.message_type[0].field] == [
        (name, at) for at, name in enumerate(fields, 1)
    ]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    for one in pool.FindMessageTypeByName("M").fields:
        kind, label = fields[one.name]
        assert (one.is_repeated, one.has_presence) == (label == "repeated", label == "optional")
        assert one.type == getattr(type(one), f"TYPE_{kind.upper()}")


def test_files_import_each_other_and_descriptors_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.proto").write_text(
        'syntax = "proto3"; package a; import "a/two.proto"; message One { Two two = 1; }'
    )
    (tmp_path / "a" / "two.proto").write_text(
        'syntax = "proto3"; package a; import public "google/protobuf/timestamp.proto"; '
        "message Two { google.protobuf.Timestamp at = 1; }"
    )
    decoder = open_decoder("protobuf", schema_file=str(tmp_path / "a" / "one.proto"))
    assert isinstance(decoder, ProtoDecoder)
    values = pa.array([b"\x0a\x04\x0a\x02\x08\x01"], pa.binary())
    expected = [{"two": {"at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)}}]
    assert decoder.decode(values).rows.to_pylist() == expected
    assert pickle.loads(pickle.dumps(decoder)).decode(values).rows.to_pylist() == expected
    assert open_decoder("protobuf", schema=decoder.files).decode(values).rows.to_pylist() == expected
    # As protoc makes it without --include_imports of what everybody has.
    files = FileDescriptorSet.FromString(
        compile_text((tmp_path / "a" / "two.proto").read_text(), lambda _: None)
    )
    (tmp_path / "two.pb").write_bytes(FileDescriptorSet(file=files.file[-1:]).SerializeToString())
    other = open_decoder("protobuf", schema_file=str(tmp_path / "two.pb"))
    assert other.schema.names == ["at"]


def test_files_that_import_themselves_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; import "b.proto"; message A {}')
    (tmp_path / "b.proto").write_text('syntax = "proto3"; import "a.proto"; message B {}')
    with pytest.raises(SchemaError, match="imports itself"):
        open_decoder("protobuf", schema_file=str(tmp_path / "a.proto"))


@pytest.mark.parametrize("data", [b"\xff\xff", FileDescriptorProto(name="x").SerializeToString() + b"\xff"])
def test_no_descriptors_are_refused(data: bytes) -> None:
    with pytest.raises(SchemaError, match="descriptors"):
        open_decoder("protobuf", schema=data)


def test_fields_that_the_message_does_not_know_are_counted_by_their_numbers() -> None:
    newer = """
    syntax = "proto3";
    message Place { string zip = 1; string city = 2; }
    message Order {
      int32 id = 1; Place place = 2; repeated Place stops = 3; map<string, Place> named = 4; bool paid = 7;
    }
    """
    older = """
    syntax = "proto3";
    message Place { string zip = 1; }
    message Order { int32 id = 1; Place place = 2; repeated Place stops = 3; map<string, Place> named = 4; }
    """
    files = compile_text(newer, lambda _: None)
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    place = {"zip": "1", "city": "B"}
    values = [
        order(id=1).SerializeToString(),
        order(id=2, paid=True, place=place).SerializeToString(),
        order(id=3, paid=True, stops=[place, place], named={"home": place}).SerializeToString(),
    ]
    decoder = pickle.loads(
        pickle.dumps(open_decoder("protobuf", schema=older, message="Order", extras=Extras(are_counted=True)))
    )
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.extra is not None
    assert decoded.extra.records == {
        "field 7": 2,
        "place.field 2": 1,
        "named.field 2": 1,
        "stops.field 2": 1,
    }
    assert [row["id"] for row in decoded.rows.to_pylist()] == [1, 2, 3]
