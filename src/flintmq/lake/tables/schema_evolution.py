"""How a table's columns may change: some may come, some may become wider, and nothing else.

    evolution.merge(old, new)        the columns of both; TableError that names the first that does not fit

Invariant: every file that was written for the old schema can be read with the merged one, and no value changes.
Columns that the new schema lacks stay, and are null in its rows. Field ids and other metadata are the old one's.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from flintmq.lake.tables.table import TableError

_PRIMITIVES: Final = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)


def merge(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    check(new)
    return pa.schema(_merged(old, new, ""), metadata=old.metadata)


def is_same_schema(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether names and types are the same, whatever the metadata."""
    return bool(one.equals(other, check_metadata=False))


def check(schema: pa.Schema) -> None:
    """TableError unless every format has the columns' types, without a change to any value."""
    _refuse_doubles(schema, "")
    for field in schema:
        _check(field.type, field.name)


def _check(kind: pa.DataType, path: str) -> None:
    types = pa.types
    if types.is_struct(kind):
        _refuse_doubles(_fields(kind), f"{path}.")
        for field in _fields(kind):
            _check(field.type, f"{path}.{field.name}")
    elif types.is_list(kind):
        _check(kind.value_type, f"{path}.element")
    elif types.is_map(kind):
        _check(kind.key_type, f"{path}.key")
        _check(kind.item_type, f"{path}.value")
    elif types.is_timestamp(kind):
        if kind.unit != "us" or kind.tz not in (None, "UTC"):
            raise TableError(
                f"Column {path!r} is {kind}; times are kept in microseconds, of UTC or of no zone."
            )
    elif not (kind in _PRIMITIVES or types.is_decimal128(kind)):
        known = ", ".join(str(one) for one in _PRIMITIVES)
        raise TableError(
            f"Column {path!r} is {kind}, which tables cannot hold. Convert it to one of {known}."
        )


def _merged(old: Iterable[pa.Field], new: Iterable[pa.Field], above: str) -> list[pa.Field]:
    fields = {field.name: field for field in old}
    _refuse_doubles(new, above)
    spelled = {name.lower(): name for name in fields}
    for field in new:
        path = above + field.name
        known = fields.get(field.name)
        if known is not None:
            kind = _wider(known.type, field.type, path)
            fields[field.name] = known.with_type(kind).with_nullable(known.nullable or field.nullable)
            continue
        if field.name.lower() in spelled:
            raise TableError(
                f"Column {path!r} differs from {above + spelled[field.name.lower()]!r} by case only, and many "
                "engines take them for one. Rename it, or write to another table."
            )
        fields[field.name] = field.with_nullable(True)  # rows that are there already have no value
        spelled[field.name.lower()] = field.name
    return list(fields.values())


def _refuse_doubles(fields: Iterable[pa.Field], above: str) -> None:
    seen = set()
    for field in fields:
        if field.name in seen:
            raise TableError(f"There are two columns {above + field.name!r}. Rename one.")
        seen.add(field.name)


def _wider(old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    if old.equals(new):
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merged(_fields(old), _fields(new), f"{path}."))
    if pa.types.is_list(old) and pa.types.is_list(new):
        inner = _wider(old.value_type, new.value_type, f"{path}.element")
        nullable = old.value_field.nullable or new.value_field.nullable
        return pa.list_(old.value_field.with_type(inner).with_nullable(nullable))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type.equals(new.key_type):
        inner = _wider(old.item_type, new.item_type, f"{path}.value")
        nullable = old.item_field.nullable or new.item_field.nullable
        return pa.map_(old.key_field, old.item_field.with_type(inner).with_nullable(nullable))
    for narrow, wide in ((old, new), (new, old)):
        if _holds(wide, narrow):
            return wide
    if pa.types.is_null(new):
        return old
    raise TableError(
        f"Column {path!r} is {old} in the table and cannot become {new}: columns may be added, int may become long, "
        "float may become double, and a decimal may get more digits. Give the column another name, sync to another "
        "directory with --to, or change the table with flintmq lake rebuild."
    )


def small_types(kind: pa.DataType) -> pa.DataType:
    """The type with offsets of 32 bits, as workers write it; libraries like to make them larger."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(small_types(field.type)) for field in _fields(kind)])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(small_types(kind.value_type)))
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(small_types(key.type)), item.with_type(small_types(item.type)))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    return kind


def _fields(kind: pa.StructType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    types = pa.types
    if types.is_signed_integer(wide) and types.is_signed_integer(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if types.is_floating(wide) and types.is_floating(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if types.is_decimal(wide) and types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return False
