"""Schemas that become one, and rows that become those of a wider schema. Pure.

    wide = unify(old, new)
    rows = conform(rows, pa.struct(wide))

Invariant: `unify` only adds columns and widens types so far that every value of both stays what it was; what cannot
become one that way is refused with the name of the column. `conform` to a unified type loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from flintmq.arrow.formats.decoder import SchemaError

JSON_TEXT: Final = pa.json_(pa.string())
"""A column that takes whatever JSON is there, as its text: inside of formats, where strings are something else."""

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_EXACT_IN_DOUBLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.float32(), pa.float64())


def plain(schema: pa.Schema | Iterable[pa.Field]) -> pa.Schema:
    """As tables have it: every column may be null, and JSON's text is a string."""
    return pa.schema([pa.field(one.name, plain_type(one.type)) for one in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    if kind == JSON_TEXT:
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, plain_type(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def unify(first: pa.Schema, *others: pa.Schema) -> pa.Schema:
    """Columns of the first come first, as they are ordered there."""
    fields = {one.name: one for one in first}
    for schema in others:
        fields = _unified(fields, schema, ())
    return pa.schema(list(fields.values()))


def paths(schema: pa.Schema | Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Give every column and every field within one: `place`, `place.zip`, `items.element.zip`, `prices.value.zip`."""
    for one in schema:
        yield above + one.name
        yield from _inner_paths(one.type, above + one.name)


def _inner_paths(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from paths(kind, f"{path}.")
    elif pa.types.is_list(kind):
        yield from _inner_paths(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _inner_paths(kind.item_type, f"{path}.value")


def fits(narrow: pa.Schema, wide: pa.Schema) -> bool:
    """Whether rows of `narrow` can be conformed to `wide`."""
    try:
        return bool(unify(wide, narrow).equals(wide))
    except SchemaError:
        return False


def conform(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same rows in a type that `unify` gave; columns that were not there are null."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        # `field` and not `flatten`: what is below a null row is nobody's business, and stays below it.
        columns = []
        for one in kind:
            at = array.type.get_field_index(one.name)
            columns.append(pa.nulls(len(array), one.type) if at < 0 else conform(array.field(at), one.type))
        nulls = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_list(kind):
        lists = _compact(array)
        return pa.ListArray.from_arrays(
            lists.offsets, conform(lists.values, kind.value_type), type=kind, mask=nulls
        )
    if pa.types.is_map(kind):
        maps = _compact(array)
        keys, items = conform(maps.keys, kind.key_type), conform(maps.items, kind.item_type)
        return pa.MapArray.from_arrays(maps.offsets, keys, items, type=kind, mask=nulls)
    return pc.cast(array, kind)


def _compact(array: pa.Array) -> pa.Array:
    """Without an offset: a mask cannot be given beside one."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _unified(
    first: Mapping[str, pa.Field], second: Iterable[pa.Field], path: tuple[str, ...]
) -> dict[str, pa.Field]:
    fields = dict(first)
    for one in second:
        there = fields.get(one.name)
        if there is None:
            fields[one.name] = one.with_nullable(True)
        else:
            kind = _wider(there.type, one.type, (*path, one.name))
            fields[one.name] = pa.field(one.name, kind, there.nullable or one.nullable, there.metadata)
    return fields


def _wider(first: pa.DataType, second: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
    if first.equals(second):
        return first
    if first in _INTEGERS and second in _INTEGERS:
        return max(first, second, key=_INTEGERS.index)
    if first in _EXACT_IN_DOUBLE and second in _EXACT_IN_DOUBLE:
        return pa.float64()
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return pa.struct(list(_unified({one.name: one for one in first}, second, path).values()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_wider(first.value_type, second.value_type, (*path, "element")))
    if pa.types.is_map(first) and pa.types.is_map(second):
        key = _wider(first.key_type, second.key_type, (*path, "key"))
        return pa.map_(key, _wider(first.item_type, second.item_type, (*path, "value")))
    if pa.types.is_decimal(first) and pa.types.is_decimal(second) and first.scale == second.scale:
        return max(first, second, key=lambda one: one.precision)
    raise SchemaError(
        f"The column {'.'.join(path)} is {first} in one schema and {second} in another, and no type holds both. "
        "Give the column another name, or read the records of each schema into a table of their own"
    )
