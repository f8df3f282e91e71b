"""Rows as keys and values of records.

JSON, CSV and plain values are made by Spark; Avro by workers, from a schema. Invariant: a record's value has every
column of the row but the key's and those of its origin.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from flintmq.errors import ConfigurationError
from flintmq.pipeline.spec.model import Pipeline, TopicSink
from flintmq.pipeline.spec.origin import ORIGIN
from flintmq.pipeline.spec.parts import Encode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALUE, KEY = "value", "key"
_FRAME: Final = struct.Struct(">bI")


def encoded(pipeline: Pipeline, sink: TopicSink, frame: DataFrame) -> DataFrame:
    """With the columns that the sink `flintmq` takes."""
    key = None if sink.key is None else str(sink.key)
    names = [name for name in frame.columns if name not in ORIGIN and name.lower() != (key or "").lower()]
    keys = [] if key is None else [_plain(frame, key).alias(KEY)]
    how = sink.value.format
    if how in ("text", "raw"):
        if VALUE not in frame.columns:
            raise ConfigurationError(
                f"{how} writes the column `{VALUE}`, and `{sink.from_}` has {', '.join(frame.columns)}"
            )
        return frame.select(*keys, _plain(frame, VALUE).alias(VALUE))
    if not names:
        raise ConfigurationError(f"`{sink.from_}` has no column beside the key: there is no value to write")
    options = {name: str(value) for name, value in sink.value.options.items()}
    row = F.struct(*(F.col(f"`{name}`") for name in names))
    if how == "json":
        return frame.select(*keys, F.to_json(row, options).alias(VALUE))
    if how == "csv":
        return frame.select(*keys, F.to_csv(row, options).alias(VALUE))
    if how == "avro":
        writer = avro_writer(pipeline, sink)
        columns = frame.select(*keys, *(F.col(f"`{name}`") for name in names))
        key_kind = "" if key is None else f"{KEY} {columns.schema[KEY].dataType.simpleString()}, "
        return columns.mapInArrow(_AvroRows(writer, bool(keys)), f"{key_kind}{VALUE} binary")
    raise ConfigurationError(f"values cannot be written as {how} yet; take json, csv, avro, text or raw")


def _plain(frame: DataFrame, name: str) -> Column:
    """A column as bytes or text."""
    kind = frame.schema[frame.columns[[one.lower() for one in frame.columns].index(name.lower())]].dataType
    column = F.col(f"`{name}`")
    return column if isinstance(kind, (BinaryType, StringType)) else column.cast("string")


@dataclass(frozen=True)
class AvroWriter:
    """Can be pickled."""

    schema: Any
    """As fastavro has parsed it."""
    schema_id: int | None
    """Of the registry: then values are framed."""

    def write(self, row: dict[str, Any]) -> bytes:
        import fastavro

        out = io.BytesIO()
        if self.schema_id is not None:
            out.write(_FRAME.pack(0, self.schema_id))
        fastavro.schemaless_writer(out, self.schema, row)
        return out.getvalue()


def avro_writer(pipeline: Pipeline, sink: TopicSink) -> AvroWriter:
    import json

    import fastavro

    text, schema_id = _schema(pipeline, sink.value, str(sink.topic))
    try:
        return AvroWriter(fastavro.parse_schema(json.loads(text)), schema_id)
    except (ValueError, fastavro.schema.SchemaParseException) as why:
        raise ConfigurationError(f"the Avro schema cannot be used: {why}") from why


def _schema(pipeline: Pipeline, value: Encode, topic: str) -> tuple[str, int | None]:
    if value.registry is not None:
        from flintmq.arrow.formats.schema_registry import HttpSchemaRegistry, SchemaDirectory

        where = value.registry
        schemas = HttpSchemaRegistry(where) if "://" in where else SchemaDirectory(pipeline.path(where))
        newest = schemas.ids_of(value.subject or f"{topic}-value")[-1]
        found = schemas.by_id(newest)
        if found is None:
            raise ConfigurationError(f"the registry has no schema {newest}")
        return found.text, newest
    if value.schema is not None:
        return str(value.schema), None
    assert value.schema_file is not None
    with open(pipeline.path(value.schema_file), encoding="utf-8") as file:
        return file.read(), None


@dataclass(frozen=True)
class _AvroRows:
    writer: AvroWriter
    has_key: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.drop_columns([KEY]) if self.has_key else batch
            values = pa.array([self.writer.write(row) for row in rows.to_pylist()], pa.binary())
            if self.has_key:
                yield pa.RecordBatch.from_arrays([batch.column(KEY), values], names=[KEY, VALUE])
            else:
                yield pa.RecordBatch.from_arrays([values], names=[VALUE])
