"""Fields of values that have no column, counted.

    fields = ExtraFields()
    fields.add(["place.zip", "note"])
    fields.merge(others)

Invariant: at most NAMES_MAX names are kept, however many there are: where names are data, the others are counted
together as OTHERS. This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

NAMES_MAX: Final = 100
OTHERS: Final = "(others)"


class Extras(NamedTuple):
    """What becomes of fields that have no column."""

    are_counted: bool = False
    are_inferred: bool = False
    """Whether columns for them are inferred."""
    column: str | None = None
    """The column that keeps them, as one JSON object."""
    reserved: frozenset[str] = frozenset()
    """Names in lower case for which no column is inferred."""


PASSED_OVER: Final = Extras()


@dataclass(slots=True)
class ExtraFields:
    records: dict[str, int] = field(default_factory=dict)
    """In how many records each field is, by its path."""
    columns: pa.Schema | None = None
    """Columns that would hold them; None if nobody asked for them, or if all of them are null."""

    def __bool__(self) -> bool:
        return bool(self.records)

    def add(self, names: Iterable[str], records: int = 1) -> None:
        for name in names:
            if name not in self.records and len(self.records) >= NAMES_MAX:
                name = OTHERS
            self.records[name] = self.records.get(name, 0) + records

    def merge(self, records: Mapping[str, int]) -> None:
        for name, count in records.items():
            self.add([name], count)


def described(records: Mapping[str, int]) -> str:
    """Return the fields for people, the most frequent first: `note (12 records), place.zip (1 record)`."""
    ordered = sorted(records.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name} ({count:,} record{'' if count == 1 else 's'})" for name, count in ordered)


def merged(parts: Iterable[ExtraFields | None]) -> ExtraFields | None:
    """Return the fields of all parts; their columns are left out."""
    together = ExtraFields()
    for one in parts:
        if one is not None:
            together.merge(one.records)
    return together or None
