"""What a user says of a format, as a decoder.

    open_decoder("json", schema="id long, name string")
    open_decoder("avro", schema_file="order.avsc")
    open_decoder("protobuf", schema_file="order.proto", message="shop.Order")
    open_decoder("avro", registry="http://localhost:8081", subject="orders-value")

Invariant: what does not go together is refused, with what to say instead. Files are read here, where the user is, and
nowhere else: a decoder that travels takes its schema along.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.decoder import Decoder, SchemaError
from flintmq.arrow.formats.extra_fields import PASSED_OVER, Extras
from flintmq.arrow.formats.json import schema as json_schema
from flintmq.arrow.formats.schema_registry import HttpSchemaRegistry, SchemaDirectory, SchemaType

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024


def open_decoder(
    kind: str,
    *,
    schema: str | bytes | pa.Schema | None = None,
    schema_file: str | None = None,
    message: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    ids: Iterable[int] = (),
    extras: Extras = PASSED_OVER,
) -> Decoder:
    """A decoder of values of one kind.

    `schema` is the schema itself: JSON's as DDL, JSON Schema or Arrow's, Avro's as JSON, Protobuf's as the text of a
    .proto file or as a FileDescriptorSet's bytes; `schema_file` is a file of that. `message` is Protobuf's message,
    by default the first. `registry` is the address of a schema registry or a folder of schemas named by their ids:
    then values are framed as by Confluent's serializers, and the columns are those of all versions of the `subject`,
    and of the schemas `ids`. `extras` says what becomes of fields that have no column: only JSON can keep them, or
    infer columns for them.
    """
    try:
        what = SchemaType(kind)
    except ValueError:
        raise SchemaError(f"The format {kind} is not known; there are {', '.join(SchemaType)}") from None
    if message is not None and what is not SchemaType.PROTOBUF:
        raise SchemaError("A message is named only for protobuf")
    if extras.column is not None and (what is not SchemaType.JSON or registry is not None):
        raise SchemaError(
            "Fields without a column can be kept only of JSON whose columns are named or inferred"
        )
    if registry is not None:
        if schema is not None or schema_file is not None:
            raise SchemaError(
                "Schemas come from the registry or from a file, not from both: leave one of them out"
            )
        return _framed(what, registry, subject=subject, ids=ids, message=message, extras=extras)
    if subject is not None or ids:
        raise SchemaError("A subject is one of a registry: say which, as in http://localhost:8081")
    if (schema is None) == (schema_file is None):
        raise SchemaError(
            f"Values in {what} need exactly one schema: the schema itself, a file, or a registry"
        )
    if what is SchemaType.PROTOBUF:
        return _protobuf(schema, schema_file, message, extras)
    if schema_file is not None:
        schema = _text(_read(schema_file), schema_file)
    if what is SchemaType.AVRO:
        from flintmq.arrow.formats.avro.decoder import AvroDecoder

        return AvroDecoder(_text(schema, "the schema"))
    from flintmq.arrow.formats.json.decoder import JsonDecoder

    return JsonDecoder(
        schema if isinstance(schema, pa.Schema) else json_columns(_text(schema, "the schema")), extras
    )


def _framed(
    kind: SchemaType,
    registry: str,
    *,
    subject: str | None,
    ids: Iterable[int],
    message: str | None,
    extras: Extras,
) -> Decoder:
    from flintmq.arrow.formats.framed_decoder import FramedDecoder

    schemas: HttpSchemaRegistry | SchemaDirectory
    if "://" in registry:
        schemas = HttpSchemaRegistry(registry)
        found = [] if subject is None else schemas.ids_of(subject)
    else:
        schemas = SchemaDirectory(registry)
        found = schemas.ids_of(subject or "")
    if not (wanted := [*found, *ids]):
        raise SchemaError(
            "Name the subject whose schemas the records have; that of a topic's values is TOPIC-value"
        )
    return FramedDecoder(schemas, wanted, kind=kind, message=message, extras=extras)


def _protobuf(schema: object, schema_file: str | None, message: str | None, extras: Extras) -> Decoder:
    from flintmq.arrow.formats.protobuf.decoder import ProtoDecoder, messages_of
    from flintmq.arrow.formats.protobuf.descriptors import compile_text, completed

    if schema_file is not None:
        data = _read(schema_file)
        directory = os.path.dirname(os.path.abspath(schema_file))
        if schema_file.endswith(".proto"):
            name = os.path.basename(schema_file)
            files = compile_text(
                _text(data, schema_file), lambda other: _imported(directory, other), name=name
            )
        else:
            files = completed(data)
    elif isinstance(schema, bytes):
        files = completed(schema)
    else:
        files = compile_text(_text(schema, "the schema"), lambda _: None)
    names = messages_of(files)
    if not names:
        raise SchemaError("The Protobuf schema has no message")
    return ProtoDecoder(files, message or names[0], extras)


def json_columns(text: str) -> pa.Schema:
    """Return the columns of a schema of JSON: DDL, or JSON Schema."""
    return json_schema.parse(text) if text.lstrip().startswith("{") else ddl.parse(text)


def _imported(directory: str, name: str) -> str | None:
    """Beside the file, or where its folders begin: an import names the way from there."""
    for _ in range(len(directory.split(os.sep))):
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            return _text(_read(path), path)
        directory = os.path.dirname(directory)
    return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as why:
        raise SchemaError(f"The schema cannot be read: {why}") from why
    if len(data) > _FILE_BYTES_MAX:
        raise SchemaError(f"{path} is too large for a schema")
    return data


def _text(data: object, what: str) -> str:
    try:
        if isinstance(data, bytes):
            return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        raise SchemaError(f"{what} is no text: {why}") from None
    if not isinstance(data, str):
        raise SchemaError(f"{what} is no text")
    return data
