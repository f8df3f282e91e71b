"""Framed values with schemas from a registry over HTTP, a small one but a real server, and from a folder."""

from __future__ import annotations

import io
import json
import pickle
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from flintmq.arrow.formats import NewSchemas, SchemaError, open_decoder
from flintmq.arrow.formats.framed_decoder import FramedDecoder
from flintmq.arrow.formats.framing import NO_FRAME, NO_VALUE, bodies_of, ids_of
from flintmq.arrow.formats.schema_registry import HttpSchemaRegistry, RegistryError, SchemaType
from flintmq.errors import ConfigurationError
from support.pipeline.schema_registry import Registry, serving


@pytest.fixture
def server() -> Iterator[Registry]:
    with serving() as one:
        yield one


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


V1 = record(("a", "int"))
V2 = record(("a", "long"), ("b", ["null", "string"]))
V3 = record(("a", "long"), ("b", ["null", "string"]), ("c", "double"))


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return framed(schema_id, file.getvalue())


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_ids_are_found_in_any_slice() -> None:
    values = binary(
        b"x", framed(1, b""), None, framed(2**32 - 1, b"body"), b"\0\0\0\0", b"\1\0\0\0\7", framed(7, b"z")
    )
    expected = [NO_FRAME, 1, NO_VALUE, 2**32 - 1, NO_FRAME, NO_FRAME, 7]
    for start in range(len(values) + 1):
        for stop in range(start, len(values) + 1):
            assert ids_of(values.slice(start, stop - start)).tolist() == expected[start:stop]
    framed_ones = binary(framed(1, b""), framed(2, b"body"), framed(3, b"x" * 300), framed(4, b""))
    for start in range(4):
        found = bodies_of(framed_ones.slice(start))
        found.validate(full=True)
        assert found.to_pylist() == [b"", b"body", b"x" * 300, b""][start:]
    assert ids_of(pa.nulls(2, pa.binary())).tolist() == [NO_VALUE, NO_VALUE]


def test_values_of_all_versions_become_one_table(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    server.add("t-value", 9, json.dumps(V2))
    decoder = open_decoder("avro", registry=server.url, subject="t-value")
    assert decoder.schema.equals(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    values = binary(
        avro(9, V2, {"a": 2, "b": "x"}), avro(1, V1, {"a": 1}), None, avro(9, V2, {"a": 3, "b": None})
    )
    decoded = decoder.decode(values)
    assert decoded.rows.to_pylist() == [{"a": 2, "b": "x"}, {"a": 1, "b": None}, None, {"a": 3, "b": None}]
    assert not decoded.errors
    assert decoder.decode(pa.chunked_array([values.slice(0, 2), values.slice(2)])) == decoded
    assert len(decoder.decode(values.slice(0, 0)).rows) == 0


def test_poison_names_its_id_and_harms_nobody(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    decoder = open_decoder("avro", registry=server.url, subject="t-value")
    good = avro(1, V1, {"a": 1})
    decoded = decoder.decode(binary(good, framed(77, b"\2"), b"", b"\1" + good[1:], good + b"!", good))
    assert [one.row for one in decoded.errors] == [1, 2, 3, 4]
    assert "id 77" in decoded.errors[0].message
    assert "schema 1:" in decoded.errors[3].message
    assert decoded.rows.to_pylist() == [{"a": 1}, None, None, None, None, {"a": 1}]


def test_columns_that_are_new_are_never_left_out(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    server.add("elsewhere", 2, json.dumps(record(("a", "int"))))
    server.add("elsewhere", 3, json.dumps(V3))
    decoder = open_decoder("avro", registry=server.url, subject="t-value")
    assert isinstance(decoder, FramedDecoder)
    # Not one of the subject's, but with no other columns.
    assert not decoder.decode(binary(avro(2, V1, {"a": 1}))).errors
    values = binary(avro(1, V1, {"a": 1}), avro(3, V3, {"a": 2, "b": "y", "c": 0.5}))
    with pytest.raises(NewSchemas) as new:
        decoder.decode(values)
    assert pickle.loads(pickle.dumps(new.value)).ids == {3}
    wider = decoder.with_ids(new.value.ids)
    assert wider.schema.names == ["a", "b", "c"]
    assert wider.decode(values).rows.to_pylist()[1] == {"a": 2, "b": "y", "c": 0.5}


def test_a_decoder_travels_with_what_it_knows(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    decoder = open_decoder("avro", registry=server.url, subject="t-value")
    decoder.decode(binary(framed(5, b"")))
    server.asked.clear()
    other = pickle.loads(pickle.dumps(decoder))
    assert other.decode(binary(avro(1, V1, {"a": 1}))).rows.to_pylist() == [{"a": 1}]
    assert not server.asked
    # An id that was unknown is asked for again elsewhere, and once.
    server.add("later", 5, json.dumps(V1))
    values = binary(avro(5, V1, {"a": 5}))
    assert other.decode(values) == other.decode(values)
    assert not other.decode(values).errors
    assert server.asked == ["/schemas/ids/5"]


def test_json_behind_a_frame(server: Registry) -> None:
    text = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'
    server.add("t-value", 4, text, schemaType="JSON")
    decoder = open_decoder("json", registry=server.url, subject="t-value")
    decoded = decoder.decode(binary(framed(4, b'{"a": 1}'), framed(4, b"{}"), framed(4, b"")))
    assert decoded.rows.to_pylist() == [{"a": 1}, None, None]
    with pytest.raises(SchemaError, match="is json, not avro"):
        open_decoder("avro", registry=server.url, subject="t-value")


PROTO = """syntax = "proto3"; package p; import "other.proto";
message First { int32 a = 1; o.Other other = 2; map<string, int32> m = 3; message Inner { string b = 1; } }
message Second { int32 c = 1; }"""


def test_protobuf_behind_a_frame_says_which_message(server: Registry) -> None:
    other = 'syntax = "proto3"; package o; message Other { bool yes = 1; }'
    server.add("other", 5, other, schemaType="PROTOBUF")
    references = [{"name": "other.proto", "subject": "other", "version": 1}]
    server.add("t-value", 6, PROTO, schemaType="PROTOBUF", references=references)
    first, long_first = framed(6, b"\0\x08\x01"), framed(6, b"\2\0\x08\x02")
    inner, second = framed(6, b"\4\0\0\x0a\1x"), framed(6, b"\2\2\x08\x03")
    values = binary(first, long_first, inner, second, framed(6, b"\2\x10"), framed(6, b""), framed(6, b"\2"))
    decoded = open_decoder("protobuf", registry=server.url, subject="t-value").decode(values)
    assert [row and row["a"] for row in decoded.rows.to_pylist()] == [1, 2, *[None] * 5]
    assert [one.row for one in decoded.errors] == [2, 3, 4, 5, 6]
    assert "p.Second" in decoded.errors[1].message
    chosen = open_decoder("protobuf", registry=server.url, subject="t-value", message="p.First.Inner")
    assert chosen.decode(values).rows.to_pylist()[2] == {"b": "x"}


def impatient(url: str) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(url, first_pause_s=0.001)


def test_a_registry_that_fails_for_a_moment_is_asked_again(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    server.failures = 3
    assert impatient(server.url).ids_of("t-value") == [1]


def test_a_registry_that_does_not_answer_stops_everything(server: Registry) -> None:
    server.add("t-value", 1, json.dumps(V1))
    decoder = FramedDecoder(impatient(server.url), [1], kind=SchemaType.AVRO, message=None)
    server.failures = 10**6
    with pytest.raises(RegistryError, match="503"):
        decoder.decode(binary(framed(2, b"")))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(RegistryError, match="cannot be asked"):
            impatient(f"http://127.0.0.1:{nobody.getsockname()[1]}").by_id(1)


def test_what_is_no_registry_is_not_taken_for_one_without_schemas(server: Registry) -> None:
    with pytest.raises(SchemaError, match="no subject"):
        open_decoder("avro", registry=server.url, subject="t-value")
    server.schemas[1] = {}
    with pytest.raises(RegistryError, match="lacks 'schema'"):
        HttpSchemaRegistry(server.url).by_id(1)
    with pytest.raises(ConfigurationError):
        HttpSchemaRegistry("localhost:8081")


def test_too_many_unknown_ids_are_not_all_asked_for(server: Registry) -> None:
    schemas = HttpSchemaRegistry(server.url, unknown_max=3)
    assert [schemas.by_id(one) for one in (1, 2, 3, 1)] == [None] * 4
    with pytest.raises(RegistryError, match="framed"):
        schemas.by_id(4)


def test_the_password_is_sent_and_never_shown(server: Registry) -> None:
    server.password = "me:se/cret"
    server.add("t-value", 1, json.dumps(V1))
    with pytest.raises(RegistryError, match="401"):
        open_decoder("avro", registry=server.url, subject="t-value")
    url = server.url.replace("//", "//me:se%2Fcret@")
    decoder = open_decoder("avro", registry=url, subject="t-value")
    assert decoder.schema.names == ["a"]
    server.password = "me:other"
    with pytest.raises(RegistryError) as error:
        HttpSchemaRegistry(url).by_id(1)
    assert "se%2F" not in f"{error.value} {HttpSchemaRegistry(url)!r}"
    assert "se/c" not in f"{error.value} {HttpSchemaRegistry(url)!r}"


def test_avro_that_refers_to_other_subjects(server: Registry) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    server.add("inner", 1, json.dumps(inner))
    references = [{"name": "Inner", "subject": "inner", "version": 1}]
    server.add("t-value", 2, json.dumps(record(("a", "Inner"))), references=references)
    decoder = open_decoder("avro", registry=server.url, subject="t-value")
    assert decoder.decode(binary(framed(2, b"\x0e"))).rows.to_pylist() == [{"a": {"x": 7}}]


def test_schemas_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps(V1))
    (tmp_path / "2.avsc").write_text(json.dumps(V2))
    (tmp_path / "notes.txt").write_text("nothing")
    decoder = open_decoder("avro", registry=str(tmp_path))
    decoded = decoder.decode(binary(avro(1, V1, {"a": 1}), avro(2, V2, {"a": 2, "b": "x"}), framed(3, b"")))
    assert decoded.rows.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, None]
    assert [one.row for one in decoded.errors] == [2]
    with pytest.raises(RegistryError, match="cannot be read"):
        open_decoder("avro", registry=str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SchemaError, match="named by their ids"):
        open_decoder("avro", registry=str(tmp_path / "empty"))


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "xml", "schema": "a int"},
        {"kind": "json"},
        {"kind": "json", "schema": "a int", "schema_file": "x"},
        {"kind": "json", "schema": "a int", "message": "M"},
        {"kind": "json", "schema": "a int", "registry": "http://localhost"},
        {"kind": "json", "schema": "a int", "subject": "s"},
        {"kind": "avro", "registry": "http://localhost"},
        {"kind": "avro", "schema_file": "/nowhere/at/all"},
        {"kind": "avro", "schema": pa.schema([])},
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        open_decoder(**options)
