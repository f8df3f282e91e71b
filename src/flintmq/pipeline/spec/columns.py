"""Columns as Spark writes them, `id bigint, tags array<string>`: whether they can be, and what they are called. Pure.

Spark itself reads those of files and states. Those of records are read by decoders: they have `json` beside Spark's
types, have no `variant`, and keys of maps are strings.

    columns("id long, place struct<x: double>")         # (Column("id", 0), Column("place", 9))

Decoders read the same text into types with `flintmq.arrow.formats.ddl`, which needs Arrow; this runs without, before
anything is installed, and says where in the text something is wrong.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from flintmq.pipeline.spec.sql_tokens import words
from flintmq.settings.declaration import nearest

_SIMPLE: Final = words(
    "boolean tinyint byte smallint short int integer bigint long float real double string binary date "
    "timestamp timestamp_ltz timestamp_ntz"
)
_OF_SPARK: Final = words("variant")
_OF_RECORDS: Final = words("json")
_TEXTS: Final = ("string", "varchar", "char")
_DIGITS_MAX: Final = 38
_SIZED: Final = {"decimal": 2, "dec": 2, "numeric": 2, "varchar": 1, "char": 1}
_NESTED: Final = ("array", "map", "struct")
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|(?:'(?:[^'\\]|\\.)*')+|\w+|[<>(),:]|\S|$)")
_DEPTH_MAX: Final = 100


class Column(NamedTuple):
    name: str
    offset: int
    """Where in the text it begins."""
    type: str
    """As it is written, in lower case."""


class ColumnsError(ValueError):
    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def columns(text: str, *, of_records: bool = False) -> tuple[Column, ...]:
    """ColumnsError says what is wrong, and where."""
    reader = _Reader(text, of_records=of_records)
    found = reader.fields()
    if reader.token:
        raise reader.unexpected("a comma or the end")
    return found


class _Reader:
    def __init__(self, text: str, *, of_records: bool) -> None:
        self._text = text
        self._of_records = of_records
        self._simple = _SIMPLE | (_OF_RECORDS if of_records else _OF_SPARK)
        self._end = 0
        self._depth = 0
        self._advance()

    def fields(self) -> tuple[Column, ...]:
        found: list[Column] = []
        while True:
            column = self._field()
            if column.name.lower() in (one.name.lower() for one in found):
                raise ColumnsError(f"the column {column.name} is there twice", column.offset)
            found.append(column)
            if self.token != ",":
                return tuple(found)
            self._advance()

    def unexpected(self, wanted: str) -> ColumnsError:
        there = repr(self.token) if self.token else "the end"
        return ColumnsError(f"{there} where {wanted} belongs", self._start)

    def _field(self) -> Column:
        name, start = self.token, self._start
        if name.startswith("`") and len(name) > 1:
            name = name[1:-1].replace("``", "`")
        elif not (name[:1].isalnum() or name[:1] == "_"):
            raise self.unexpected("a column's name")
        self._advance()
        if self.token == ":":
            self._advance()
        type_start = self._start
        self._type()
        kind = self._text[type_start : self._start].strip().lower()
        if self.token.lower() == "not":
            self._advance()
            self._expect("null")
        if self.token.lower() == "comment":
            self._advance()
            if not self.token.startswith("'"):
                raise self.unexpected("a comment in single quotes")
            self._advance()
        return Column(name, start, kind)

    def _type(self) -> None:
        name = self.token.lower()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ColumnsError(f"types are nested more than {_DEPTH_MAX} deep", self._start)
        if name in _NESTED:
            self._advance()
            self._expect("<")
            if name == "struct":
                self.fields()
            else:
                key, start = self.token.lower(), self._start
                self._type()
                if name == "map" and self._of_records and key not in _TEXTS:
                    raise ColumnsError("a map's keys are strings, as records have no others", start)
            if name == "map":
                self._expect(",")
                self._type()
            self._expect(">")
        elif name in _SIZED:
            start = self._start
            self._advance()
            if self.token == "(" or name in _TEXTS:
                self._check_size(name, self._numbers(_SIZED[name]), start)
        elif name in self._simple:
            self._advance()
        else:
            guess = nearest(name, (*sorted(self._simple), *_SIZED, *_NESTED)) if name else None
            raise self.unexpected(
                "a type such as long, string or timestamp" + (f" ({guess}?)" if guess else "")
            )
        self._depth -= 1

    def _check_size(self, name: str, numbers: list[int], start: int) -> None:
        if name in _TEXTS:
            return
        digits, behind = (*numbers, 0)[:2]
        if not 1 <= digits <= _DIGITS_MAX or behind > digits:
            shown = ", ".join(map(str, numbers))
            raise ColumnsError(
                f"there is no {name}({shown}): up to {_DIGITS_MAX} digits, and not more of them behind the point",
                start,
            )

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
