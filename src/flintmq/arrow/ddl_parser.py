"""Parses columns as Spark writes them, `id bigint, tags array<string>`, into plain types. Pure; needs no pyarrow.

    parse_columns("id long, place struct<x: double>")       # (Column("id", …), Column("place", …))

Pipeline files are checked with it before anything is installed; `arrow.formats.ddl` makes Arrow schemas of it. There
are two dialects. Spark itself reads the columns of files and states; decoders read those of records: they have `json`
beside Spark's types and no `variant`, and the keys of their maps are strings. Errors say where in the text they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from flintmq.settings.declaration import nearest

_SIMPLE: Final = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_TEXTS: Final = ("string", "varchar", "char")
_SIZED: Final = {"decimal": 2, "dec": 2, "numeric": 2, "varchar": 1, "char": 1}
"""How many numbers may follow."""
_NESTED: Final = ("array", "map", "struct")
_DIGITS_MAX: Final = 38
_DEPTH_MAX: Final = 100
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|(?:'(?:[^'\\]|\\.)*')+|\w+|[<>(),:]|\S|$)")


class Dialect(Enum):
    """Whose columns they are: a simple type that only they have."""

    SPARK = "variant"
    RECORDS = "json"


@dataclass(frozen=True, slots=True)
class SimpleType:
    name: str
    """The first of its names: `bigint`, not `long`."""


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: ColumnType


@dataclass(frozen=True, slots=True)
class MapType:
    key: ColumnType
    value: ColumnType


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[Column, ...]


ColumnType: TypeAlias = SimpleType | DecimalType | ArrayType | MapType | StructType


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType
    is_nullable: bool
    offset: int
    """Where in the text it begins."""
    type_text: str
    """The type as it is written, in lower case."""


class DdlError(ValueError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parse_columns(
    text: str, dialect: Dialect = Dialect.SPARK, *, ignore_case: bool = True
) -> tuple[Column, ...]:
    """Return the columns; DdlError says what is wrong, and where. `ignore_case`: `a` and `A` are the same name."""
    parser = _Parser(text, dialect, ignore_case=ignore_case)
    columns = parser.columns()
    if parser.token:
        raise parser.unexpected("a comma or the end")
    return columns


class _Parser:
    def __init__(self, text: str, dialect: Dialect, *, ignore_case: bool) -> None:
        self._text = text
        self._dialect = dialect
        self._ignore_case = ignore_case
        self._simple = {**_SIMPLE, dialect.value: dialect.value}
        self._end = 0
        self._depth = 0
        self._advance()

    def columns(self) -> tuple[Column, ...]:
        found: list[Column] = []
        names: set[str] = set()
        while True:
            column = self._column()
            name = column.name.lower() if self._ignore_case else column.name
            if name in names:
                raise DdlError(f"the column {column.name} is there twice", column.offset)
            names.add(name)
            found.append(column)
            if self.token != ",":
                return tuple(found)
            self._advance()

    def unexpected(self, wanted: str) -> DdlError:
        there = repr(self.token) if self.token else "the end"
        return DdlError(f"{there} where {wanted} belongs", self._start)

    def _column(self) -> Column:
        name, start = self.token, self._start
        if name.startswith("`") and len(name) > 1:
            name = name[1:-1].replace("``", "`")
        elif not (name[:1].isalnum() or name[:1] == "_"):
            raise self.unexpected("a column's name")
        self._advance()
        if self.token == ":":
            self._advance()
        type_start = self._start
        kind = self._type()
        type_text = self._text[type_start : self._start].strip().lower()
        is_nullable = True
        if self.token.lower() == "not":
            self._advance()
            self._expect("null")
            is_nullable = False
        if self.token.lower() == "comment":
            self._advance()
            if not self.token.startswith("'"):
                raise self.unexpected("a comment in single quotes")
            self._advance()
        return Column(name, kind, is_nullable, start, type_text)

    def _type(self) -> ColumnType:
        name = self.token.lower()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise DdlError(f"types are nested more than {_DEPTH_MAX} deep", self._start)
        if name in _NESTED:
            found = self._nested_type(name)
        elif name in _SIZED:
            found = self._sized_type(name)
        elif name in self._simple:
            self._advance()
            found = SimpleType(self._simple[name])
        else:
            guess = nearest(name, (*sorted(self._simple), *_SIZED, *_NESTED)) if name else None
            raise self.unexpected(
                "a type such as long, string or timestamp" + (f" ({guess}?)" if guess else "")
            )
        self._depth -= 1
        return found

    def _nested_type(self, name: str) -> ColumnType:
        self._advance()
        self._expect("<")
        found: ColumnType
        if name == "struct":
            found = StructType(self.columns())
        elif name == "array":
            found = ArrayType(self._type())
        else:
            key_name, start = self.token.lower(), self._start
            key = self._type()
            if self._dialect is Dialect.RECORDS and key_name not in _TEXTS:
                raise DdlError("a map's keys are strings, as records have no others", start)
            self._expect(",")
            found = MapType(key, self._type())
        self._expect(">")
        return found

    def _sized_type(self, name: str) -> ColumnType:
        start = self._start
        self._advance()
        is_text = name in _TEXTS
        numbers = self._numbers(_SIZED[name]) if self.token == "(" or is_text else [10]
        if is_text:
            return SimpleType("string")
        precision, scale = (*numbers, 0)[:2]
        if not 1 <= precision <= _DIGITS_MAX or scale > precision:
            shown = ", ".join(map(str, numbers))
            raise DdlError(
                f"there is no {name}({shown}): up to {_DIGITS_MAX} digits, and not more of them behind the point",
                start,
            )
        return DecimalType(precision, scale)

    def _numbers(self, count_max: int) -> list[int]:
        self._expect("(")
        found: list[int] = []
        for at in range(count_max):
            if not (self.token.isascii() and self.token.isdigit() and len(self.token) < 10):
                raise self.unexpected("a number")
            found.append(int(self.token))
            self._advance()
            if self.token != "," or at + 1 == count_max:
                break
            self._advance()
        self._expect(")")
        return found

    def _expect(self, word: str) -> None:
        if self.token.lower() != word:
            raise self.unexpected(repr(word))
        self._advance()

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._end)
        assert found is not None
        self.token = found[1]
        self._start, self._end = found.span(1)
