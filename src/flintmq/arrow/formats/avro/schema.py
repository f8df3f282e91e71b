"""Builds columns from an Avro schema: where in fastavro's objects the columns are, and of what type. Pure.

A union with null is a column that may be null; a union of several types is a struct with a member for each,
`member0`, `member1`, …, of which one is set, as Spark has it. What holds nothing (null, a record without fields) is
no column. Recursive types have no columns and are refused.
Invariant: builders are for objects read by the schema *without* its logical types (`without_logical_types`), with the
names of named types in unions: so numbers become times in Arrow and not one by one in Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from flintmq.arrow.formats.column_builder import (
    ColumnBuilder,
    ItemGetter,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
)
from flintmq.arrow.formats.decoder import SchemaError

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_PYTHON: Final[dict[str, type]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}
_NAMED: Final = ("record", "error", "enum", "fixed")
_UTC_US: Final = pa.timestamp("us", "UTC")
_DIGITS_MAX: Final = 38


def columns_of(schema: Any, named: Mapping[str, Any]) -> StructColumn:
    """Of a record, as fastavro's `parse_schema` gives it with the named types that are in it."""
    column = _Translation(named).column(schema, ())
    if not isinstance(column, StructColumn) or _kind(schema) not in ("record", "error"):
        raise SchemaError(
            "The Avro schema is not that of a record with fields, which become the columns. "
            "Keep such values as they are, with the format raw"
        )
    return column


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: one if name in ("default", "symbols", "aliases", "doc") else without_logical_types(one)
            for name, one in schema.items()
            if name != "logicalType"
        }
    return schema


@dataclass(frozen=True, slots=True)
class _Unnamed:
    """Of a named type in a union: fastavro gives its name and the value."""

    column: ColumnBuilder

    @property
    def type(self) -> pa.DataType:
        return self.column.type

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.column.array([None if one is None else one[1] for one in values])


@dataclass(frozen=True, slots=True)
class _Branch:
    """The values of one branch of a union; None for those of the others."""

    name: str | None
    """Of a named type."""
    kinds: tuple[type, ...] = ()

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        if self.name is not None:
            return [one[1] if type(one) is tuple and one[0] == self.name else None for one in objects]
        return [one if type(one) in self.kinds else None for one in objects]


class _Translation:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def column(self, schema: Any, path: tuple[str, ...]) -> ColumnBuilder | None:
        """None of what holds nothing; `path` are the named types around it."""
        if isinstance(schema, list):
            return self._union(schema, path)
        schema = self._resolved(schema)
        kind = _kind(schema)
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return _each(ListColumn, self._sized(schema["items"], path))
        if kind == "map":
            return _each(partial(MapColumn, ScalarColumn(pa.string())), self.column(schema["values"], path))
        if kind == "enum":
            return ScalarColumn(pa.string())
        if kind == "null":
            return None
        return _logical(schema, kind) or ScalarColumn(pa.binary() if kind == "fixed" else _PRIMITIVES[kind])

    def _record(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> StructColumn | None:
        name = schema["name"]
        if name in path:
            raise SchemaError(
                f"The Avro type {name} holds itself, so it has no fixed columns. "
                "Keep such values as they are, with the format raw"
            )
        members = []
        for field in schema["fields"]:
            column = self.column(field["type"], (*path, name))
            if column is not None:
                members.append(StructField(field["name"], ItemGetter(field["name"]), column))
        return StructColumn(tuple(members)) if members else None

    def _union(self, branches: Sequence[Any], path: tuple[str, ...]) -> ColumnBuilder | None:
        found: list[tuple[_Branch, ColumnBuilder]] = []
        for schema in map(self._resolved, branches):
            column, kind = self.column(schema, path), _kind(schema)
            if column is not None:
                is_named = kind in _NAMED
                found.append(
                    (_Branch(schema["name"]) if is_named else _Branch(None, (_PYTHON[kind],)), column)
                )
        found = _told_apart(found)
        if len(found) == 1:
            branch, column = found[0]
            return column if branch.name is None else _Unnamed(column)
        members = [StructField(f"member{at}", branch, column) for at, (branch, column) in enumerate(found)]
        return StructColumn(tuple(members)) if members else None

    def _sized(self, items: Any, path: tuple[str, ...]) -> ColumnBuilder | None:
        """Items of an array take bytes: else ten bytes could say that there are a million million of them."""
        column = self.column(items, path)
        if self._is_empty(items):
            raise SchemaError(
                "An Avro array has items without any bytes, so that it cannot be bounded; not read"
            )
        return column

    def _is_empty(self, schema: Any) -> bool:
        if isinstance(schema, list):
            return False
        schema = self._resolved(schema)
        kind = _kind(schema)
        if kind in ("record", "error"):
            return all(self._is_empty(field["type"]) for field in schema["fields"])
        return kind == "null" or (kind == "fixed" and not schema["size"])

    def _resolved(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    # {"type": {"type": "string"}} is allowed.
    return kind if isinstance(kind, str) else _kind(kind)


def _each(make: Callable[[ColumnBuilder], ColumnBuilder], item: ColumnBuilder | None) -> ColumnBuilder | None:
    return None if item is None else make(item)


def _told_apart(found: Sequence[tuple[_Branch, ColumnBuilder]]) -> list[tuple[_Branch, ColumnBuilder]]:
    """Python's objects do not say whether a number was an int or a long: such branches become one."""
    apart: dict[_Branch, ColumnBuilder] = {}
    for branch, column in found:
        if branch in apart:
            types = {apart[branch].type, column.type}
            if types == {pa.int32(), pa.int64()}:
                column = ScalarColumn(pa.int64())
            elif types == {pa.float32(), pa.float64()}:
                column = ScalarColumn(pa.float64())
            else:
                raise SchemaError(
                    f"An Avro union of {' and '.join(sorted(map(str, types)))} cannot be read into columns: "
                    "its numbers do not say which of them they are. Keep such values as they are, with the format raw"
                )
        apart[branch] = column
    return list(apart.items())


def _logical(schema: Any, kind: str) -> ScalarColumn | None:
    """What a logical type makes of its bytes or number; None if that is nothing else."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if kind == "int" and logical == "date":
        return ScalarColumn(pa.date32())
    if kind == "long" and logical in _TIMES:
        return _TIMES[logical]
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        if precision > _DIGITS_MAX:
            return None
        return ScalarColumn(pa.decimal128(precision, scale), partial(_decimal, scale))
    if kind == "fixed" and logical == "uuid" and schema["size"] == 16:
        return ScalarColumn(pa.string(), _uuid)
    return None


def _milliseconds(number: int) -> int:
    return number * 1000


def _nanoseconds(number: int) -> int:
    """Columns have microseconds, as Spark and the tables have."""
    return number // 1000


def _decimal(scale: int, data: bytes) -> Decimal:
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))


def _uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


_TIMES: Final = {
    "timestamp-millis": ScalarColumn(_UTC_US, _milliseconds),
    "timestamp-micros": ScalarColumn(_UTC_US),
    "timestamp-nanos": ScalarColumn(_UTC_US, _nanoseconds),
    "local-timestamp-millis": ScalarColumn(pa.timestamp("us"), _milliseconds),
    "local-timestamp-micros": ScalarColumn(pa.timestamp("us")),
    "local-timestamp-nanos": ScalarColumn(pa.timestamp("us"), _nanoseconds),
}
