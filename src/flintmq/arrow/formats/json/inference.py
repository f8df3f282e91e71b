"""The columns of JSON objects, from a sample of them. Pure.

    schema = infer(values)
    kind = merge_kinds(kind_of({"id": 1}), kind_of({"id": 2.5}))     what several values have in common
    schema = columns_of(kind)

Invariant: every object of the sample is a row under what is inferred. What varies in kind, what was always null, and
what has no columns (an empty object or array) is taken as its text, so that nothing of it is lost or refused later.
Texts stay texts, even those that look like times.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from flintmq.arrow.formats.decoder import SchemaError, Values
from flintmq.arrow.formats.schema_merge import JSON_TEXT

SAMPLE_MAX: Final = 10_000
COLUMNS_MAX: Final = 10_000
_INT64: Final = range(-(1 << 63), 1 << 63)

_Kind: TypeAlias = pa.DataType | dict[str, Any] | list[Any] | None
"""A struct is a dict of kinds, a list one of one kind, None what was only ever null."""


def infer(values: Values) -> pa.Schema:
    """From at most SAMPLE_MAX values; those that are no JSON objects are passed over."""
    found: Any = None
    for value in values.slice(0, SAMPLE_MAX).to_pylist():
        try:
            one = msgspec.json.decode(value) if value is not None else None
            if isinstance(one, dict):
                found = merge_kinds(found, kind_of(one))
        except (ValueError, RecursionError):
            continue
    if not found:
        raise SchemaError(
            "No columns can be inferred: among the first records there is no JSON object with members. "
            "Name the columns, as in 'id long, name string'"
        )
    if len(found) > COLUMNS_MAX:
        raise SchemaError(
            f"More than {COLUMNS_MAX} columns are inferred: the members' names seem to be data. Name the columns"
        )
    return columns_of(found)


def columns_of(kind: Any) -> pa.Schema:
    """Return the columns of what is common to objects."""
    return pa.schema([(name, type_of(one)) for name, one in kind.items()])


def common_columns(first: pa.Schema | None, second: pa.Schema | None) -> pa.Schema | None:
    """Return columns that hold the objects of both, which were inferred from different values."""
    if first is None or second is None:
        return second if first is None else first
    return columns_of(merge_kinds(*(_kind_of_type(pa.struct(list(one))) for one in (first, second))))


def kind_of(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: kind_of(one) for name, one in value.items()}
    if isinstance(value, list):
        item: Any = None
        for one in value:
            item = merge_kinds(item, kind_of(one))
        return [item]
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in _INT64 else JSON_TEXT
    return pa.float64() if isinstance(value, float) else pa.string()


def merge_kinds(first: _Kind, second: _Kind) -> Any:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, dict) and isinstance(second, dict):
        merged = dict(first)
        for name, kind in second.items():
            merged[name] = merge_kinds(merged[name], kind) if name in merged else kind
        return merged
    if isinstance(first, list) and isinstance(second, list):
        return [merge_kinds(first[0], second[0])]
    if isinstance(first, (dict, list)) or isinstance(second, (dict, list)):
        return JSON_TEXT
    if first.equals(second):
        return first
    return pa.float64() if {first, second} == {pa.int64(), pa.float64()} else JSON_TEXT


def type_of(kind: _Kind) -> pa.DataType:
    if isinstance(kind, dict):
        return pa.struct([(name, type_of(one)) for name, one in kind.items()]) if kind else JSON_TEXT
    if isinstance(kind, list):
        return JSON_TEXT if kind[0] is None else pa.list_(type_of(kind[0]))
    return JSON_TEXT if kind is None else kind


def _kind_of_type(kind: pa.DataType) -> _Kind:
    if pa.types.is_struct(kind):
        return {one.name: _kind_of_type(one.type) for one in kind}
    return [_kind_of_type(kind.value_type)] if pa.types.is_list(kind) else kind
