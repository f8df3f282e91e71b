"""Builds columns from a Protobuf message type: where in messages the columns are, and of what type. Pure.

Fields with presence (messages, `optional`, members of a `oneof`, proto2) are null where they are not set; others have
their default. Enums are their names, or their number as text where the name is not known. Unsigned numbers take the
next wider type, as Spark has it. Wrappers are the value that they wrap, `Timestamp` is a timestamp in microseconds,
`Struct`, `Value` and `ListValue` are JSON's text. What holds nothing is no column; what holds itself is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from flintmq.arrow.formats.column_builder import (
    AttributeGetter,
    ColumnBuilder,
    Convert,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
)
from flintmq.arrow.formats.decoder import SchemaError

_F: Final = FieldDescriptor
_SCALARS: Final = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
}
_UNSIGNED_64: Final = (_F.TYPE_UINT64, _F.TYPE_FIXED64)
_DYNAMIC: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"


@dataclass(frozen=True, slots=True)
class _IfSet:
    """A field that may be missing."""

    name: str

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        name = self.name
        return [getattr(one, name) if one.HasField(name) else None for one in objects]


@dataclass(frozen=True, slots=True)
class _Map:
    """As (key, value) pairs in a dict: a map of messages gives the messages only by their keys."""

    name: str

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        name = self.name
        return [dict(getattr(one, name).items()) for one in objects]


def columns_of(message: Descriptor) -> StructColumn:
    column = _message(message, ())
    if not isinstance(column, StructColumn):
        raise SchemaError(
            f"The Protobuf message {message.full_name} has no fields that could become columns. Name another one"
        )
    return column


def _message(message: Descriptor, path: tuple[str, ...]) -> ColumnBuilder | None:
    name = message.full_name
    if name == _TIMESTAMP:
        return ScalarColumn(pa.timestamp("us", "UTC"), _microseconds)
    if name in _DYNAMIC:
        return ScalarColumn(pa.string(), _json)
    if name in _WRAPPERS:
        value = message.fields_by_name["value"]
        return ScalarColumn(
            _scalar(value).type, _unwrapped_unsigned if value.type in _UNSIGNED_64 else _unwrapped
        )
    if name in path:
        raise SchemaError(
            f"The Protobuf message {name} holds itself, so it has no fixed columns. "
            "Keep such values as they are, with the format raw"
        )
    members = []
    for field in message.fields:
        column = _field(field, (*path, name))
        if column is not None:
            members.append(StructField(field.name, _read(field), column))
    return StructColumn(tuple(members)) if members else None


def _read(field: FieldDescriptor) -> Any:
    if _is_map(field):
        return _Map(field.name)
    return _IfSet(field.name) if field.has_presence else AttributeGetter(field.name)


def _field(field: FieldDescriptor, path: tuple[str, ...]) -> ColumnBuilder | None:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        item = _value(value, path)
        return None if item is None else MapColumn(_scalar(key), item)
    one = _value(field, path)
    return ListColumn(one) if one is not None and field.is_repeated else one


def _value(field: FieldDescriptor, path: tuple[str, ...]) -> ColumnBuilder | None:
    return _scalar(field) if field.message_type is None else _message(field.message_type, path)


def _scalar(field: FieldDescriptor) -> ScalarColumn:
    if field.enum_type is not None:
        return ScalarColumn(pa.string(), _EnumName.of(field))
    if field.type in _UNSIGNED_64:
        return ScalarColumn(pa.decimal128(20, 0), Decimal)
    return ScalarColumn(_SCALARS[field.type])


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


@dataclass(frozen=True, slots=True)
class _EnumName:
    names: dict[int, str]

    @classmethod
    def of(cls, field: FieldDescriptor) -> Convert:
        # Of names for the same number the first counts, as in Protobuf's own JSON.
        return cls({one.number: one.name for one in reversed(field.enum_type.values)})

    def __call__(self, number: int) -> str:
        return self.names.get(number) or str(number)


def _microseconds(message: Any) -> int:
    """What is finer is cut off: columns have microseconds, as Spark and the tables have."""
    return int(message.seconds) * 1_000_000 + int(message.nanos) // 1000


def _unwrapped(message: Any) -> Any:
    return message.value


def _unwrapped_unsigned(message: Any) -> Decimal:
    return Decimal(message.value)


def _json(message: Any) -> str:
    # Not on many lines, and the same text for the same message.
    return str(json_format.MessageToJson(message, indent=None, sort_keys=True))
