"""Arrow schemas as DDL, and back: `id bigint, tags array<string>`. Pure.

    schema = parse("id long NOT NULL, place struct<x: double, y: double>")
    text = write(schema)

Beside Spark's types there is `json`: whatever JSON is there, as its text. Invariant: `parse(write(schema))` is the
schema, for every schema that `parse` returns.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from flintmq.arrow.ddl_parser import (
    ArrayType,
    Column,
    ColumnType,
    DdlError,
    DecimalType,
    Dialect,
    MapType,
    SimpleType,
    parse_columns,
)
from flintmq.arrow.formats.decoder import SchemaError
from flintmq.arrow.formats.schema_merge import JSON_TEXT

_TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "json": JSON_TEXT,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TEXT_CHARS_MAX: Final = 500


def parse(text: str) -> pa.Schema:
    """Return the schema; raise SchemaError if `text` is no DDL."""
    try:
        return pa.schema(map(_field, parse_columns(text, Dialect.RECORDS, ignore_case=False)))
    except DdlError as error:
        raise SchemaError(f"The schema cannot be read: {error}, in: {text[:_TEXT_CHARS_MAX]}") from None


def write(schema: pa.Schema) -> str:
    return ", ".join(_field_text(one, " ") for one in schema)


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _arrow_type(column.type), column.is_nullable)


def _arrow_type(kind: ColumnType) -> pa.DataType:
    if isinstance(kind, SimpleType):
        return _TYPES[kind.name]
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow_type(kind.element))
    if isinstance(kind, MapType):
        return pa.map_(_arrow_type(kind.key), _arrow_type(kind.value))
    return pa.struct(list(map(_field, kind.fields)))


def _field_text(one: pa.Field, separator: str) -> str:
    name = one.name if _PLAIN_NAME.fullmatch(one.name) else "`" + one.name.replace("`", "``") + "`"
    return f"{name}{separator}{_type_text(one.type)}{'' if one.nullable else ' NOT NULL'}"


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_field_text(one, ': ') for one in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if kind not in _NAMES:
        raise SchemaError(f"The type {kind} has no name in DDL")
    return _NAMES[kind]
