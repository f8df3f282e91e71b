"""Columns as Spark writes them, `id bigint, tags array<string>`, as a schema of Arrow, and back. Pure.

    schema = parse("id long NOT NULL, place struct<x: double, y: double>")
    text = write(schema)

Beside Spark's types there is `json`: whatever JSON is there, as its text. Invariant: `parse(write(schema))` is the
schema, for every schema that `parse` gives.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from flintmq.arrow.formats.decoder import SchemaError
from flintmq.arrow.formats.schema_merge import JSON_TEXT

_TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "json": JSON_TEXT,
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_WRITTEN: Final = {kind: name for name, kind in reversed(_TYPES.items())}
_DEPTH_MAX: Final = 100
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|((?:'(?:[^'\\]|\\.)*')+)|(\w+)|([<>(),:]))", re.UNICODE)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def parse(text: str) -> pa.Schema:
    """SchemaError if it is no such text."""
    reader = _Reader(text)
    fields = reader.fields(end=None)
    return pa.schema(fields)


def write(schema: pa.Schema) -> str:
    return ", ".join(_written_field(one, " ") for one in schema)


def _written_field(one: pa.Field, separator: str) -> str:
    name = one.name if _NAME.fullmatch(one.name) else "`" + one.name.replace("`", "``") + "`"
    return f"{name}{separator}{_written(one.type)}{'' if one.nullable else ' NOT NULL'}"


def _written(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_written_field(one, ': ') for one in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_written(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_written(kind.key_type)}, {_written(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if kind not in _WRITTEN:
        raise SchemaError(f"The type {kind} has no name in DDL")
    return _WRITTEN[kind]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._token = ""
        self._advance()

    def fields(self, *, end: str | None) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            fields.append(self._field())
            if not self._took(","):
                break
        if end is None:
            if self._token:
                raise self._unexpected("a comma or the end")
        else:
            self._expect(end)
        names = [one.name for one in fields]
        if double := next((name for name in names if names.count(name) > 1), None):
            raise SchemaError(f"The column {double} is there twice, in: {self._text}")
        return fields

    def _field(self) -> pa.Field:
        name = self._token
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name or not (name[0].isalnum() or name[0] == "_"):
            raise self._unexpected("a column's name")
        self._advance()
        self._took(":")
        kind = self._type()
        nullable = True
        if self._took("not"):
            self._expect("null")
            nullable = False
        if self._took("comment"):
            if not self._token.startswith("'"):
                raise self._unexpected("a comment in single quotes")
            self._advance()
        return pa.field(name, kind, nullable)

    def _type(self) -> pa.DataType:
        name = self._token.lower()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise SchemaError(f"Types are nested more than {_DEPTH_MAX} deep in: {self._text[:200]}")
        try:
            if name in _DECIMALS:
                self._advance()
                return self._decimal()
            if name in ("array", "map", "struct"):
                self._advance()
                self._expect("<")
                return self._nested(name)
            if name not in _TYPES:
                raise self._unexpected("a type of Spark's, as in 'id long, name string'")
            self._advance()
            if name in ("varchar", "char"):
                self._numbers()
            return _TYPES[name]
        finally:
            self._depth -= 1

    def _nested(self, name: str) -> pa.DataType:
        if name == "struct":
            return pa.struct(self.fields(end=">"))
        first = self._type()
        if name == "array":
            self._expect(">")
            return pa.list_(first)
        if first != pa.string():
            raise SchemaError(f"A map's keys are strings, as JSON has no others, in: {self._text}")
        self._expect(",")
        second = self._type()
        self._expect(">")
        return pa.map_(first, second)

    def _decimal(self) -> pa.DataType:
        precision, scale = (*self._numbers(), 10, 0)[:2] if self._token == "(" else (10, 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise SchemaError(
                f"There is no decimal({precision}, {scale}): up to 38 digits, and not more of them behind the point"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        numbers = []
        self._expect("(")
        while True:
            if not (self._token.isascii() and self._token.isdigit() and len(self._token) < 10):
                raise self._unexpected("a number")
            numbers.append(int(self._token))
            self._advance()
            if not self._took(","):
                break
        self._expect(")")
        # decimal(p) means decimal(p, 0).
        return [*numbers, 0] if len(numbers) == 1 else numbers

    def _took(self, word: str) -> bool:
        if self._token.lower() != word:
            return False
        self._advance()
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise self._unexpected(repr(word))

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                self._token = self._text[self._at :].strip()[0]
                raise self._unexpected("something else")
            self._token = ""
            return
        self._at = found.end()
        self._token = found.group(0).strip()

    def _unexpected(self, wanted: str) -> SchemaError:
        there = repr(self._token) if self._token else "the end"
        return SchemaError(f"A schema has {there} where {wanted} belongs: {self._text[:500]}")
