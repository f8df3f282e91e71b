"""Whether formats, schemas and columns go together. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from flintmq.arrow.ddl_parser import ArrayType, DdlError, Dialect, MapType, StructType, parse_columns
from flintmq.pipeline.spec.csv_options import CsvOptionError, csv_options
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import FilesSource, Pipeline, Source, TopicSink, TopicSource
from flintmq.pipeline.spec.origin import ORIGIN
from flintmq.pipeline.spec.parts import Decode, Encode
from flintmq.pipeline.spec.problems import Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import place_of

RECORD: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Those of a record that is not decoded."""

_TAKES: Final = {
    "json": ("schema", "schema_file", "registry"),
    "avro": ("schema", "schema_file", "registry"),
    "protobuf": ("schema", "schema_file", "registry"),
    "csv": ("schema",),
}
_NEEDED: Final = ("avro", "protobuf")
_HINT: Final = "write columns like `id long, name string, at timestamp`"


def check_schemas(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            yield from _coding(source.decode, f"sources.{source.name}.decode")
            yield from _decoding(source)
        elif isinstance(source, FilesSource):
            yield from _files(source)
        yield from _watermark(source)
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            yield from _coding(sink.value, f"sinks.{sink.name}.value")


def known_columns(source: Source) -> tuple[str, ...] | None:
    """The columns of a source; None if the file alone does not say."""
    if isinstance(source, FilesSource):
        if source.decode.format == "text":
            return ("value",)
        return _names(source.decode.schema, dialect=Dialect.SPARK)
    if not isinstance(source, TopicSource):
        return None
    decode = source.decode
    if decode.format == "raw":
        return (*RECORD, *ORIGIN)
    if decode.into is not None:
        return (*ORIGIN, decode.into)
    if decode.format == "text":
        return (*ORIGIN, "value")
    found = _names(decode.schema) if _is_ddl(decode) else None
    return None if found is None else (*ORIGIN, *found)


def _coding(part: Decode | Encode, what: str) -> Iterator[Problem]:
    takes = _TAKES.get(part.format, ()) if isinstance(part, Decode) or part.format in _NEEDED else ()
    given = [name for name in ("schema", "schema_file", "registry") if getattr(part, name) is not None]
    for name in given:
        if name not in takes:
            place = place_of(getattr(part, name), part.place)
            hint = f"leave `{name}` out" + (f", or give `{takes[0]}`" if takes else "")
            yield Problem(Rule.SCHEMA, place, f"{what}: {part.format} takes no `{name}`", hint)
    if len(given) > 1:
        both = " and ".join(f"`{name}`" for name in given)
        yield Problem(
            Rule.SCHEMA, part.place, f"{what} has {both}", "a schema comes from one place; keep one of them"
        )
    needs = part.format in _NEEDED or (part.format == "csv" and isinstance(part, Decode))
    if needs and not given:
        names = " or ".join(f"`{name}`" for name in takes)
        yield Problem(Rule.SCHEMA, part.place, f"{what}: {part.format} needs a schema", f"give {names}")
    for name, ok in (("message", part.format == "protobuf"), ("subject", part.registry is not None)):
        if (value := getattr(part, name, None)) is not None and not ok:
            whose = "protobuf" if name == "message" else "a registry"
            yield Problem(Rule.SCHEMA, place_of(value, part.place), f"{what}: a `{name}` is one of {whose}")
    yield from _registry(part, what)
    if part.schema is not None and _is_ddl(part):
        try:
            parse_columns(part.schema, Dialect.RECORDS)
        except DdlError as error:
            place = place_of(part.schema, part.place, offset=error.offset)
            yield Problem(Rule.SCHEMA, place, f"{what}.schema: {error}", _HINT)


def _csv(decode: Decode, what: str) -> Iterator[Problem]:
    try:
        csv_options(decode.options)
    except CsvOptionError as error:
        yield Problem(Rule.WRONG_VALUE, place_of(error.name, decode.place), f"{what}.options: {error}")
    if decode.schema is None or _names(decode.schema) is None:
        return
    for column in parse_columns(decode.schema, Dialect.RECORDS):
        if isinstance(column.type, ArrayType | MapType | StructType):
            place = place_of(decode.schema, decode.place, offset=column.offset)
            message = f"{what}: a line of CSV cannot hold the column `{column.name}`, {column.type_text}"
            yield Problem(Rule.SCHEMA, place, message, "give it as a string, and take it apart in a step")


def _registry(part: Decode | Encode, what: str) -> Iterator[Problem]:
    if part.registry is None or "://" not in part.registry:
        return
    try:
        parts = urlsplit(part.registry)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        place = place_of(part.registry, part.place)
        message = f"{what}.registry is no address of a registry"
        yield Problem(Rule.WRONG_VALUE, place, message, "give one such as http://localhost:8081, or a folder")


def _decoding(source: TopicSource) -> Iterator[Problem]:
    decode = source.decode
    if decode.format == "csv":
        yield from _csv(decode, f"sources.{source.name}.decode")
    if decode.into is not None:
        if decode.into.lower() in ORIGIN:
            place = place_of(decode.into, decode.place)
            message = f"`into` cannot be `{decode.into}`: a column that says where a record comes from has this name"
            yield Problem(Rule.SCHEMA, place, message, "take another name, such as body")
        return
    if decode.schema is None or not _is_ddl(decode) or _names(decode.schema) is None:
        return
    for column in parse_columns(decode.schema, Dialect.RECORDS):
        if column.name.lower() in ORIGIN:
            yield Problem(
                Rule.SCHEMA,
                place_of(decode.schema, decode.place, offset=column.offset),
                f"the column `{column.name}` has the name of one that says where a record comes from",
                "put what is decoded into a column of its own, such as `into: body`",
            )


def _files(source: FilesSource) -> Iterator[Problem]:
    decode = source.decode
    if source.stream and decode.format in ("json", "csv") and decode.schema is None:
        message = f"`{source.name}` is a stream of {decode.format} files, which needs a schema"
        yield Problem(Rule.SCHEMA, decode.place, message, _HINT)


def _watermark(source: Source) -> Iterator[Problem]:
    known = known_columns(source)
    if source.watermark is None or known is None:
        return
    column = source.watermark.column
    if column.partition(".")[0].lower() not in (name.lower() for name in known):
        place = place_of(column, source.watermark.place)
        message = f"`{source.name}` has no column `{column}` for its watermark"
        yield Problem(Rule.COLUMN, place, message, did_you_mean(column, known))


def _is_ddl(part: Decode | Encode) -> bool:
    text = part.schema
    return text is not None and part.format in ("json", "csv") and not text.lstrip().startswith("{")


def _names(schema: str | None, *, dialect: Dialect = Dialect.RECORDS) -> tuple[str, ...] | None:
    try:
        if schema is None:
            return None
        return tuple(column.name for column in parse_columns(schema, dialect))
    except DdlError:
        return None
