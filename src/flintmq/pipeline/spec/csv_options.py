"""Options of records in CSV, by Spark's names, as Python's csv module takes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

NAMES: Final = ("sep", "delimiter", "quote", "escape", "nullValue")
_OF_CSV: Final = {
    "sep": "delimiter",
    "delimiter": "delimiter",
    "quote": "quotechar",
    "escape": "escapechar",
}
_NULL: Final = "nullvalue"
_TAB: Final = "\\t"
"""As people write it, and YAML takes it for two characters where it is not in double quotes."""


class CsvOptions(NamedTuple):
    format: dict[str, str]
    null: str


class CsvOptionError(ValueError):
    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name
        """As it was given, which knows its place."""


def csv_options(options: Mapping[str, str]) -> CsvOptions:
    """CsvOptionError says which one cannot be."""
    format: dict[str, str] = {}
    null = ""
    for name, given in options.items():
        if name.lower() == _NULL:
            null = str(given)
        elif (own := _OF_CSV.get(name.lower())) is None:
            raise CsvOptionError(f"records in CSV have no option {name}; there is {', '.join(NAMES)}", name)
        else:
            char = "\t" if given == _TAB else str(given)
            if len(char) != 1 or char in "\r\n\0":
                raise CsvOptionError(f"the option {name} of CSV is one character, not {str(given)!r}", name)
            if char in format.values():
                raise CsvOptionError(f"the option {name} of CSV is what another one is, {char!r}", name)
            format[own] = char
    return CsvOptions(format, null)
