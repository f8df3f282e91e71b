"""The small parts that sources, steps and sinks are made of: how bytes are read and written, watermarks, state.

Together with `model` this is the one declaration of a pipeline's file. Names of fields are those of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from flintmq.pipeline.spec.declaration import FieldKind, Lasting, Part, declared

RECORD_FORMATS: Final = ("json", "avro", "protobuf", "csv", "text", "raw")
WRITTEN_FORMATS: Final = ("json", "avro", "csv", "text", "raw")
"""Those in which values of records can be written."""
FILE_FORMATS: Final = ("json", "csv", "text", "parquet")
TABLE_FORMATS: Final = ("parquet", "iceberg", "delta")
"""Those of the lake."""
FAIL, DROP, DEAD_LETTER = "fail", "drop", "dead-letter"
OTHERWISE: Final = (FAIL, DROP, DEAD_LETTER)

_SCHEMA: Final = (
    "the schema itself: columns such as `id long, at timestamp` (json, csv), a JSON Schema (json), a schema in JSON "
    "(avro), or the text of a .proto file (protobuf)"
)
_REGISTRY: Final = (
    "{} a schema's id in front (Confluent's framing): the registry's address, or a folder of schemas"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark(Part):
    """Until when rows may come late. Windows and joins of streams forget what is older."""

    column: str = declared(FieldKind.TEXT, "the column with the time of an event")
    delay: str = declared(FieldKind.DURATION, "how late a row may be")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Part):
    """How the value of a record becomes columns. Steps that name them also have `_topic`, `_partition`, `_offset`,
    `_timestamp` and `_key`; `text` gives one column `value`, and `raw` all columns of the record with `value` as its
    bytes."""

    SHORT: ClassVar[str] = "format"

    format: str = declared(FieldKind.CHOICE, "what values are", choices=RECORD_FORMATS)
    schema: str | None = declared(
        FieldKind.TEXT, f"{_SCHEMA}. JSON without a schema has that of a sample", None
    )
    schema_file: str | None = declared(FieldKind.PATH, "a file with the schema", None)
    message: str | None = declared(FieldKind.TEXT, "protobuf: which message; the first one otherwise", None)
    registry: str | None = declared(FieldKind.TEXT, _REGISTRY.format("values have"), None)
    subject: str | None = declared(FieldKind.TEXT, "of the registry; TOPIC-value otherwise", None)
    sample: int = declared(FieldKind.COUNT, "JSON without a schema: so many records are looked at", 1000)
    into: str | None = declared(FieldKind.TEXT, "one column for all that is decoded", None)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "CSV: Spark's options, such as `sep`", {})
    otherwise: str | None = declared(
        FieldKind.CHOICE,
        "what becomes of a record that cannot be decoded; dead-letter where there are `dead_letters`, and else fail",
        None,
        choices=OTHERWISE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDecode(Part):
    """How files become rows."""

    SHORT: ClassVar[str] = "format"

    format: str = declared(FieldKind.CHOICE, "what files are", choices=FILE_FORMATS)
    schema: str | None = declared(FieldKind.COLUMNS, "columns; a stream of json or csv must have them", None)
    options: Mapping[str, str] = declared(
        FieldKind.OPTIONS, "Spark's options of the format, such as `header: true`", {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Encode(Part):
    """How a row becomes the value of a record: all its columns but the key's, or, with `text` and `raw`, the column
    `value` as it is."""

    SHORT: ClassVar[str] = "format"

    format: str = declared(FieldKind.CHOICE, "what values are", choices=WRITTEN_FORMATS)
    schema: str | None = declared(FieldKind.TEXT, "Avro: the schema itself, in JSON", None)
    schema_file: str | None = declared(FieldKind.PATH, "Avro: a file with the schema", None)
    registry: str | None = declared(FieldKind.TEXT, _REGISTRY.format("values get"), None)
    subject: str | None = declared(FieldKind.TEXT, "of the registry; TOPIC-value otherwise", None)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "JSON and CSV: Spark's options", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation(Part):
    """What must be true of every row of a step."""

    SHORT: ClassVar[str] = "that"

    that: str = declared(FieldKind.TEXT, "a condition in SQL; null counts as not met")
    otherwise: str = declared(
        FieldKind.CHOICE, "what becomes of a row that does not meet it", FAIL, choices=OTHERWISE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup(Part):
    """Of rows with the same keys only the first stays."""

    keys: tuple[str, ...] = declared(
        FieldKind.TEXTS, "columns that make two rows the same", lasting=Lasting.FIXED
    )
    within: str | None = declared(
        FieldKind.DURATION,
        "so far apart in time the same keys are the same row; without it they are for ever, and are all kept",
        None,
        lasting=Lasting.FIXED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Part):
    """State of your own for each key, in a class for Spark's `transformWithState`."""

    python: str = declared(FieldKind.PYTHON, "`file.py:Class`, a StatefulProcessor")
    keys: tuple[str, ...] = declared(
        FieldKind.TEXTS, "columns that a state belongs to", lasting=Lasting.FIXED
    )
    output: str = declared(FieldKind.COLUMNS, "the columns that come out")
    time: str = declared(
        FieldKind.CHOICE,
        "which time its timers have",
        "none",
        choices=("none", "processing", "event"),
        lasting=Lasting.FIXED,
    )
    mode: str = declared(
        FieldKind.CHOICE, "whether rows are new or replace others", "append", choices=("append", "update")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(Part):
    """When a batch begins."""

    SHORT: ClassVar[str] = "run"

    every: str | None = declared(
        FieldKind.DURATION, "begin a batch so often; without it, as soon as there is something", None
    )
    run: str = declared(
        FieldKind.CHOICE,
        "for ever, or until all is done that is there now",
        "always",
        choices=("always", "available-now"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters(Part):
    """Where records go that cannot be decoded or do not meet an expectation, with the error, the step and the origin
    in headers."""

    SHORT: ClassVar[str] = "topic"

    topic: str = declared(FieldKind.TEXT, "the topic")
