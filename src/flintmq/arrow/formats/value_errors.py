"""Why a value does not become a row: the column, the kind of the value, and the column's type, in words. Pure.

    value_error(why, columns)                          id: a string does not fit long

The libraries that read values speak of their own types and paths; whoever reads a quarantine knows the columns.
Texts that no rule here knows are left as they are. This module must not know formats.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa

_CHARS_MAX: Final = 500
_TYPES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_KINDS: Final = {
    "int": "an integer",
    "float": "a floating-point number",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "bytes": "bytes",
}
_AT: Final = re.compile(r"(.*) - at `(\$.*)`", re.DOTALL)
_MISFIT: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_OUT_OF_RANGE: Final = re.compile(r"Expected `(?:int|float)(?: \| null)?` (<=|>=) .*")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_BAD_STRINGS: Final = {
    "Invalid RFC3339 encoded datetime": "a time in ISO 8601, such as 2026-01-31T12:00:00Z",
    "Invalid RFC3339 encoded date": "a date in ISO 8601, such as 2026-01-31",
    "Invalid base64 encoded string": "base64",
    "Invalid decimal string": "a number",
}
_WITH_ZONE: Final = "Expected `datetime` with no timezone component"
_TOO_LARGE: Final = ("Number out of range", "Integer value out of range")
_TRUNCATED: Final = "Input data was truncated"
_STEP: Final = re.compile(r"\[(?:\d+|\.\.\.)\]")


class ColumnPath(NamedTuple):
    """A column, or a field inside of one."""

    name: str
    """Its path: `customer.address.city`, `tags[2]`."""
    type: pa.DataType | None
    """None if it is not known."""

    @property
    def type_name(self) -> str:
        return "the column" if self.type is None else type_name(self.type)


def value_error(why: Exception, columns: pa.StructType, *, column: ColumnPath | None = None) -> str:
    """Say what is wrong with a value. `column` is the one that could not hold it, where only the caller knows."""
    text = str(why).strip() or type(why).__name__
    said = _unreadable(why, text) or (_misfit(text, column) if column else _reader_error(text, columns))
    return said if len(said) <= _CHARS_MAX else said[:_CHARS_MAX] + "…"


def type_name(kind: pa.DataType) -> str:
    """The name that a schema gives the type, without what is inside of a nested one."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return "array"
    if pa.types.is_map(kind):
        return "map"
    return _TYPES.get(kind) or str(kind)


def _unreadable(why: Exception, text: str) -> str | None:
    if isinstance(why, UnicodeDecodeError):
        return "the bytes are not UTF-8"
    if isinstance(why, RecursionError):
        return "the value is nested too deeply"
    return "the JSON ends before it is complete" if text == _TRUNCATED else None


def _reader_error(text: str, columns: pa.StructType) -> str:
    """What the reader of JSON says; its path leads to the column."""
    found = _AT.fullmatch(text)
    text, path = (found[1], found[2]) if found else (text, "$")
    if missing := _MISSING.fullmatch(text):
        name = missing[1] if path == "$" else f"{path[2:]}.{missing[1]}"
        return f"{name}: it is missing, and the column must not be null"
    if path == "$":
        if misfit := _MISFIT.fullmatch(text):
            return f"the value is {_kind(misfit[2])}, not a JSON object"
        return text
    column = _column_at(path, columns)
    if misfit := _MISFIT.fullmatch(text):
        if misfit[2] == "null":
            return f"{column.name}: it is null, and the column must not be null"
        return f"{column.name}: {_kind(misfit[2])} does not fit {column.type_name}"
    if bound := _OUT_OF_RANGE.fullmatch(text):
        size = "large" if bound[1] == "<=" else "small"
        return f"{column.name}: the number is too {size} for {column.type_name}"
    if text in _TOO_LARGE:
        return f"{column.name}: the number is too large for {column.type_name}"
    if text == _WITH_ZONE:
        return f"{column.name}: a time with a zone does not fit {column.type_name}"
    if text in _BAD_STRINGS:
        return f"{column.name}: the string does not fit {column.type_name}: it is not {_BAD_STRINGS[text]}"
    return f"{column.name}: {text}"


def _misfit(text: str, column: ColumnPath) -> str:
    """What Arrow says of a value that its column cannot hold."""
    if column.type is not None and pa.types.is_decimal(column.type):
        digits = "decimal places" if text.startswith("Rescaling") else "digits"
        if text.startswith(("Rescaling", "Decimal type with precision")):
            return f"{column.name}: the number has more {digits} than {column.type_name}"
    if "too large to convert" in text or "out of bounds" in text or "out of range" in text:
        return f"{column.name}: the number does not fit {column.type_name}"
    return f"{column.name}: the value does not fit {column.type_name}: {text}"


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


def _column_at(path: str, columns: pa.StructType) -> ColumnPath:
    """Follow `$.a.b[1].c`. Names may have dots: the longest name that fits is the one."""
    name = path.removeprefix("$").removeprefix(".")
    kind: pa.DataType | None = columns
    rest = path.removeprefix("$")
    while rest and kind is not None:
        if pa.types.is_struct(kind):
            there = [one for one in kind if rest == f".{one.name}" or _begins(rest, one.name)]
            if not there:
                return ColumnPath(name, None)
            chosen = max(there, key=lambda one: len(one.name))
            kind, rest = chosen.type, rest[1 + len(chosen.name) :]
        elif step := _STEP.match(rest):
            kind, rest = _inner(kind), rest[step.end() :]
        else:
            return ColumnPath(name, None)
    return ColumnPath(name, kind)


def _begins(rest: str, name: str) -> bool:
    return rest.startswith((f".{name}.", f".{name}["))


def _inner(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_list(kind):
        return kind.value_type
    return kind.item_type if pa.types.is_map(kind) else None
