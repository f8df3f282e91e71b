"""Values of each format: what can be decoded becomes rows, and what cannot is a dead letter, as it was."""

from __future__ import annotations

import io
import json
import struct

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import fastavro
import pyarrow as pa

from flintmq.pipeline.sources.text_decoders import CsvDecoder, TextDecoder
from support.pipeline.pipelines import Flow, as_records, records_of
from support.spark.spark_topics import Topics

_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
_PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'


def _avro(number: int, *, frame: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_AVRO), {"id": number, "name": f"n{number}"})
    return out.getvalue() if frame is None else struct.pack(">bI", 0, frame) + out.getvalue()


def _proto(number: int) -> bytes:
    return bytes([0x08, number, 0x12, 2]) + f"n{number}".encode()


def test_each_format_gives_rows_and_dead_letters(flow: Flow, topics: Topics, topic: str) -> None:
    written = {
        "json": ([json.dumps({"id": n, "name": f"n{n}"}).encode() for n in range(3)], [b"{", b'{"id": "x"}']),
        "inferred": ([json.dumps({"id": n, "name": f"n{n}"}).encode() for n in range(3)], [b"nonsense"]),
        "csv": ([b"0;n0", b"1;'n1'", b" 2 ;n2"], [b"x;n", b"1", b"\xff;n"]),
        "avro": ([_avro(n) for n in range(3)], [b"\x80"]),
        "framed": ([_avro(n, frame=7) for n in range(3)], [_avro(1, frame=8), b"no frame"]),
        "protobuf": ([_proto(n) for n in range(3)], [b"\x08"]),
        "text": ([f"n{n}".encode() for n in range(3)], [b"\xff\xfe"]),
    }
    for name, (good, bad) in written.items():
        topics.create(f"{topic}.{name}")
        topics.write(f"{topic}.{name}", as_records([good[0], *bad, *good[1:]]))
    (flow.folder / "schemas").mkdir()
    (flow.folder / "schemas" / "7.avsc").write_text(json.dumps(_AVRO))
    (flow.folder / "order.proto").write_text(_PROTO)
    (flow.folder / "order.avsc").write_text(json.dumps(_AVRO))
    columns = 'schema: "id long, name string"'
    decoders = {
        "json": f"{{format: json, {columns}}}",
        "inferred": "{format: json}",
        "csv": f'{{format: csv, {columns}, options: {{sep: ";", quote: "\'"}}}}',
        "avro": "{format: avro, schema_file: order.avsc}",
        "framed": "{format: avro, registry: schemas}",
        "protobuf": "{format: protobuf, schema_file: order.proto}",
        "text": "text",
    }
    sources = "".join(
        f"          {name}: {{topic: {topic}.{name}, decode: {decode}}}\n"
        for name, decode in decoders.items()
    )
    union = " union all ".join(
        f"select '{name}' as kind, {'value as name' if name == 'text' else 'name'} from {name}"
        for name in decoders
    )
    flow.write(
        f"""
        name: {topic}
        sources:
{sources}
        steps:
          all: {{sql: "{union}"}}
        sinks:
          out: {{from: all, topic: {topic}.out, key: kind}}
          packed: {{from: avro, topic: {topic}.avro.out, value: {{format: avro, schema_file: order.avsc}}}}
        dead_letters: {topic}.dead
        """
    )
    outcome = flow.run()
    rows = records_of(flow.address, f"{topic}.out")
    dead = records_of(flow.address, f"{topic}.dead")
    for name, (good, bad) in written.items():
        found = sorted(one.json["name"] for one in rows if one.key == name.encode())
        assert found == ["n0", "n1", "n2"], name
        letters = [one for one in dead if one.told("step") == name]
        assert sorted(one.value or b"" for one in letters) == sorted(bad), name
        assert all(one.told("topic") == f"{topic}.{name}" for one in letters)
        assert len(found) + len(letters) == len(good) + len(bad)
    assert outcome.figures.dead_letters == len(dead)
    assert any("no schema with the id 8" in one.told("error") for one in dead)
    encoded = sorted(one.value or b"" for one in records_of(flow.address, f"{topic}.avro.out"))
    assert encoded == [_avro(n) for n in range(3)]


def test_values_may_have_columns_of_the_names_that_records_have(
    flow: Flow, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, as_records([{"key": "k", "offset": 70, "timestamp": "2026-01-15T12:00:00Z"}]))
    flow.write(
        f"""
        name: {topic}
        sources:
          orders:
            topic: {topic}
            decode: {{format: json, schema: "key string, offset long, timestamp timestamp"}}
            watermark: {{column: _timestamp, delay: 10 min}}
        steps:
          both: {{sql: "select key, offset, year(timestamp) as year, _offset as place from orders"}}
        sinks:
          out: {{from: both, topic: {topic}.out}}
        """
    )
    flow.run()
    assert flow.out(f"{topic}.out") == [{"key": "k", "offset": 70, "year": 2026, "place": 0}]


def test_lines_of_csv_have_the_types_of_their_columns() -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("ok", pa.bool_()), ("at", pa.timestamp("us", "UTC")), ("x", pa.float64())]
    )
    values = [
        b"1,true,2026-01-31T12:00:00Z,0.5",
        b'2,no,"2026-01-31 12:00:00",',
        None,
        b"3,maybe,2026-01-31T12:00:00Z,1",
        b"x,true,2026-01-31T12:00:00Z,1",
        b"1,2",
    ]
    rows, errors, _ = CsvDecoder.of(schema, {}).decode(pa.array(values, pa.binary()))
    assert [error.row for error in errors] == [3, 4, 5]
    assert "ok: expected true or false" in errors[0].message
    assert errors[2].message == "2 columns where the schema has 4"
    first, second, third, *_ = rows.to_pylist()
    assert (first["id"], first["ok"], first["x"]) == (1, True, 0.5)
    assert (second["id"], second["ok"], second["x"]) == (2, False, None)
    assert first["at"] == second["at"]
    assert third is None


def test_a_tab_may_be_written_as_people_do() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    rows, errors, _ = CsvDecoder.of(schema, {"sep": "\\t"}).decode(pa.array([b"1\tn"], pa.binary()))
    assert (rows.to_pylist(), errors) == ([{"id": 1, "name": "n"}], [])


def test_text_that_is_no_utf_8_is_bad_alone() -> None:
    rows, errors, _ = TextDecoder().decode(pa.array([b"a", b"\xff", None], pa.binary()))
    assert [row["value"] for row in rows.to_pylist()] == ["a", None, None]
    assert [error.row for error in errors] == [1]
