"""Where things stand in a file: every text of a pipeline knows its line and column. Pure.

    source = SourceFile("orders.yaml", text)
    source.place(120)                      # Place(file, line, column) of a character
    LocatedText("select *", source, origins)      # a str whose characters know where they were written

Invariant: a LocatedText is the str that it looks like, in comparisons, hashes and pickles; the place is for messages.
Lines and columns count from 1, as editors do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int
    column: int
    text: str = field(default="", repr=False, compare=False)
    """The whole line, to be shown."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file or "pipeline"


NOWHERE = Place("", 0, 0)
"""Of what was made by a program and not read from a file."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    name: str
    """As the user gave it."""
    text: str

    def place(self, index: int) -> Place:
        index = max(0, min(index, len(self.text)))
        start = self.text.rfind("\n", 0, index) + 1
        end = self.text.find("\n", start)
        shown = self.text[start : len(self.text) if end < 0 else end].rstrip("\r")
        return Place(self.name, self.text.count("\n", 0, index) + 1, index - start + 1, shown)


class LocatedText(str):
    """A text of the file."""

    __slots__ = ("_origins", "_source")
    _source: SourceFile
    _origins: Sequence[int]

    def __new__(cls, value: str, source: SourceFile, origins: Sequence[int]) -> LocatedText:
        """`origins` has, for every character and for the end, where it was written."""
        assert len(origins) == len(value) + 1
        made = super().__new__(cls, value)
        made._source = source
        made._origins = origins
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __str__(self) -> str:
        # A plain one: who keeps the text of a value need not keep its whole file.
        return "".join(self)

    def place_at(self, offset: int) -> Place:
        return self._source.place(self._origins[max(0, min(offset, len(self)))])


def place_of(value: object, default: Place, *, offset: int = 0) -> Place:
    """Return where a value was written; `default` for what is no text of a file."""
    return value.place_at(offset) if isinstance(value, LocatedText) else default
