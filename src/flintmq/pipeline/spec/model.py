"""A pipeline: sources, steps and sinks, as typed values. Together with `parts` the one declaration of its file.

    pipeline = flintmq.pipeline.load("orders.yaml")
    for node in pipeline.order():
        match node:
            case TopicSource(): …

Everything is frozen, and every part has its `place` in the file. Programs may make the same values themselves.
Invariant: a Pipeline that `load` gives has passed all checks: names are there, and there is no cycle.
"""

# ruff: noqa: RUF009  (`declared` makes a field, as `dataclasses.field` does)
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from flintmq.pipeline.spec.declaration import FieldKind, Lasting, Part, declared
from flintmq.pipeline.spec.parts import (
    FILE_FORMATS,
    TABLE_FORMATS,
    DeadLetters,
    Decode,
    Dedup,
    Encode,
    Expectation,
    FileDecode,
    State,
    Trigger,
    Watermark,
)

_FIXED = Lasting.FIXED
_SERVERS = "brokers, host:port separated by commas; the pipeline's otherwise"
_MODE = "append: rows that will not change; update: rows as they change; complete: all rows each time"
_MODES = ("append", "update", "complete")
_WHOLE = "append: rows that will not change; complete: all rows each time"
_WHOLE_MODES = ("append", "complete")
"""Of sinks in which no row can replace another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Part):
    name: str
    """A source or step is a table of this name in SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource(Node):
    """The records of a topic."""

    TAG: ClassVar[str] = "topic"

    topic: str = declared(FieldKind.TEXT, "the topic, or several separated by commas", lasting=_FIXED)
    decode: Decode = declared(FieldKind.PART, "how values become columns", Decode(format="raw"), of=(Decode,))
    start: str = declared(
        FieldKind.TEXT,
        "where to begin: earliest, latest, or a time such as 2026-01-31T12:00:00Z; a sink that has begun goes on "
        "where it was",
        "earliest",
    )
    watermark: Watermark | None = declared(
        FieldKind.PART, "until when rows may be late", None, of=(Watermark,)
    )
    stream: bool = declared(
        FieldKind.FLAG, "false: what is there at the start, as a table", True, lasting=_FIXED
    )
    group: str | None = declared(
        FieldKind.TEXT, "the consumer group that shows its lag; PIPELINE.SOURCE otherwise", None
    )
    max_records: int | None = declared(FieldKind.COUNT, "at most so many records in a batch", None)
    bootstrap_servers: str | None = declared(FieldKind.TEXT, _SERVERS, None)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "other options of the source `flintmq`", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(Node):
    """A table of the lake."""

    TAG: ClassVar[str] = "table"

    table: str = declared(FieldKind.PATH, "where it is: a folder or a URL", lasting=_FIXED)
    format: str = declared(FieldKind.CHOICE, "its format", "parquet", choices=TABLE_FORMATS, lasting=_FIXED)
    watermark: Watermark | None = declared(
        FieldKind.PART, "until when rows may be late", None, of=(Watermark,)
    )
    stream: bool = declared(FieldKind.FLAG, "true: go on with rows that are added", False, lasting=_FIXED)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "Spark's options of the format", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource(Node):
    """Files in a folder."""

    TAG: ClassVar[str] = "files"

    files: str = declared(FieldKind.PATH, "which: a path that may have * in it", lasting=_FIXED)
    decode: FileDecode = declared(FieldKind.PART, "how files become rows", of=(FileDecode,))
    watermark: Watermark | None = declared(
        FieldKind.PART, "until when rows may be late", None, of=(Watermark,)
    )
    stream: bool = declared(FieldKind.FLAG, "true: go on with files that are added", False, lasting=_FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBase(Node):
    """What all steps have."""

    expect: Mapping[str, Expectation] = declared(
        FieldKind.PARTS, "what must be true of its rows, by name", {}, of=(Expectation,)
    )
    watermark: Watermark | None = declared(
        FieldKind.PART, "until when rows may be late, by a column that the step makes", None, of=(Watermark,)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep(StepBase):
    """A query over sources and other steps, which are its tables."""

    TAG: ClassVar[str] = "sql"

    sql: str = declared(FieldKind.SQL, "the query", lasting=Lasting.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep(StepBase):
    """A function of Python: it is given data frames, and returns one."""

    TAG: ClassVar[str] = "python"

    python: str = declared(
        FieldKind.PYTHON, "`file.py:function`; the file is looked for beside the pipeline's"
    )
    from_: tuple[str, ...] = declared(
        FieldKind.NAMES, "what it is given, in order", name="from", lasting=_FIXED
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupStep(StepBase):
    """Leaves out rows that were there already."""

    TAG: ClassVar[str] = "dedup"

    dedup: Dedup = declared(FieldKind.PART, "which rows are the same", of=(Dedup,))
    from_: str = declared(FieldKind.NAME, "what it reads", name="from", lasting=_FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStep(StepBase):
    """State of your own for each key."""

    TAG: ClassVar[str] = "state"

    state: State = declared(FieldKind.PART, "the class and its keys", of=(State,))
    from_: str = declared(FieldKind.NAME, "what it reads", name="from", lasting=_FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBase(Node):
    """What all sinks have."""

    from_: str = declared(FieldKind.NAME, "what it writes", name="from", lasting=_FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink(SinkBase):
    """A topic, exactly once."""

    TAG: ClassVar[str] = "topic"

    topic: str = declared(FieldKind.TEXT, "the topic")
    key: str | None = declared(FieldKind.TEXT, "the column that is the record's key", None)
    value: Encode = declared(FieldKind.PART, "how rows become values", Encode(format="json"), of=(Encode,))
    mode: str = declared(FieldKind.CHOICE, _MODE, "append", choices=_MODES, lasting=_FIXED)
    bootstrap_servers: str | None = declared(FieldKind.TEXT, _SERVERS, None)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "other options of the sink `flintmq`", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink(SinkBase):
    """A table of the lake."""

    TAG: ClassVar[str] = "table"

    table: str = declared(FieldKind.PATH, "where it is: a folder or a URL", lasting=_FIXED)
    format: str = declared(FieldKind.CHOICE, "its format", "parquet", choices=TABLE_FORMATS, lasting=_FIXED)
    mode: str = declared(FieldKind.CHOICE, _WHOLE, "append", choices=_WHOLE_MODES, lasting=_FIXED)
    partition_by: tuple[str, ...] = declared(
        FieldKind.TEXTS, "columns, as `country` or `at:day`", (), lasting=_FIXED
    )
    options: Mapping[str, str] = declared(
        FieldKind.OPTIONS, "settings of the catalog or the object store", {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSink(SinkBase):
    """Files in a folder."""

    TAG: ClassVar[str] = "files"

    files: str = declared(FieldKind.PATH, "the folder", lasting=_FIXED)
    format: str = declared(
        FieldKind.CHOICE, "what files are", "parquet", choices=FILE_FORMATS, lasting=_FIXED
    )
    partition_by: tuple[str, ...] = declared(
        FieldKind.TEXTS, "columns that become folders", (), lasting=_FIXED
    )
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "Spark's options of the format", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink(SinkBase):
    """A table of a database."""

    TAG: ClassVar[str] = "jdbc"

    jdbc: str = declared(FieldKind.TEXT, "the database, as `jdbc:postgresql://host/name`")
    into: str = declared(FieldKind.TEXT, "the table", lasting=_FIXED)
    user: str | None = declared(FieldKind.TEXT, "who writes", None)
    password: str | None = declared(
        FieldKind.TEXT, "best from the environment: `${DB_PASSWORD}`", None, is_secret=True
    )
    driver: str | None = declared(FieldKind.TEXT, "the driver's class, if Spark does not find it", None)
    mode: str = declared(FieldKind.CHOICE, _WHOLE, "append", choices=_WHOLE_MODES, lasting=_FIXED)
    options: Mapping[str, str] = declared(FieldKind.OPTIONS, "Spark's options of JDBC", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink(SinkBase):
    """The terminal, to look at."""

    TAG: ClassVar[str] = "console"

    console: int = declared(FieldKind.COUNT, "so many rows of each batch are shown")
    mode: str = declared(FieldKind.CHOICE, _MODE, "append", choices=_MODES, lasting=_FIXED)


Source: TypeAlias = TopicSource | TableSource | FilesSource
Step: TypeAlias = SqlStep | PythonStep | DedupStep | StateStep
Sink: TypeAlias = TopicSink | TableSink | FilesSink | JdbcSink | ConsoleSink
AnyNode: TypeAlias = Source | Step | Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Part):
    """What is read, what is done with it, and where it goes."""

    name: str = declared(
        FieldKind.TEXT, "what it is called in progress, metrics and groups: letters, digits, `.`, `_`, `-`"
    )
    sources: Mapping[str, Source] = declared(
        FieldKind.PARTS, "what is read, by name", of=(TopicSource, TableSource, FilesSource)
    )
    steps: Mapping[str, Step] = declared(
        FieldKind.PARTS,
        "what is done, by name, in any order",
        {},
        of=(SqlStep, PythonStep, DedupStep, StateStep),
    )
    sinks: Mapping[str, Sink] = declared(
        FieldKind.PARTS,
        "where rows go, by name",
        of=(TopicSink, TableSink, FilesSink, JdbcSink, ConsoleSink),
    )
    dead_letters: DeadLetters | None = declared(
        FieldKind.PART, "the topic for bad records", None, of=(DeadLetters,)
    )
    trigger: Trigger = declared(FieldKind.PART, "when a batch begins", Trigger(), of=(Trigger,))
    checkpoint: str | None = declared(
        FieldKind.PATH, "the folder that remembers how far it is; `.flint/NAME` otherwise", None
    )
    bootstrap_servers: str = declared(
        FieldKind.TEXT, "brokers, host:port separated by commas", "localhost:9092"
    )
    security: Mapping[str, str] = declared(
        FieldKind.OPTIONS,
        "Kafka's client settings for TLS and SASL, such as `sasl.password: ${env:KAFKA_PASSWORD}`, for the brokers "
        "of `bootstrap_servers`",
        {},
    )
    spark: Mapping[str, str] = declared(FieldKind.OPTIONS, "Spark's configuration", {})

    file: str = field(default="", compare=False)
    """Where it was read from; paths are looked for beside it."""

    @property
    def checkpoint_path(self) -> str:
        return self.path(self.checkpoint or f".flint/{self.name}")

    def path(self, text: str) -> str:
        """A path of the file, as seen from here; URLs stay what they are."""
        if "://" in text or os.path.isabs(text):
            return str(text)
        return os.path.join(os.path.dirname(self.file), text)

    def nodes(self) -> tuple[AnyNode, ...]:
        """All, in the order of the file."""
        return (*self.sources.values(), *self.steps.values(), *self.sinks.values())

    def order(self) -> tuple[AnyNode, ...]:
        """All, each after those that it reads, and otherwise in the order of the file."""
        from flintmq.pipeline.spec.graph import Graph

        return Graph(self).order()
