"""Values that are lines of text: as they are, or as CSV. Decoders like those of `flintmq.arrow.formats`.

Invariant: theirs: a row for every value, in order; a value that cannot be decoded gives a null row and an error.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from flintmq.arrow.formats.decoder import DecodedValues, RowError, Values
from flintmq.errors import ConfigurationError
from flintmq.pipeline.spec.csv_options import CsvOptionError, csv_options

VALUE: Final = "value"
_TRUE, _FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


class TextDecoder:
    """One column, `value`."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(VALUE, pa.string())])

    def decode(self, values: Values) -> DecodedValues:
        array = _one_array(values)
        texts, errors = array, []
        try:
            texts = array.cast(pa.string())
        except pa.ArrowInvalid:
            found: list[str | None] = []
            for row, value in enumerate(array.to_pylist()):
                try:
                    found.append(None if value is None else value.decode())
                except UnicodeDecodeError as why:
                    errors.append(RowError(row, f"not valid UTF-8: {why.reason} at byte {why.start}"))
                    found.append(None)
            texts = pa.array(found, pa.string())
        return DecodedValues(pa.StructArray.from_arrays([texts], fields=list(self.schema)), errors)


@dataclass(frozen=True)
class CsvDecoder:
    """Each value is one line, with its columns in the order of the schema."""

    schema: pa.Schema
    format: Mapping[str, str]
    """As Python's csv module takes it."""
    null: str = ""

    @staticmethod
    def of(schema: pa.Schema, options: Mapping[str, str]) -> CsvDecoder:
        try:
            asked = csv_options(options)
        except CsvOptionError as error:
            raise ConfigurationError(str(error)) from error
        for field in schema:
            if pa.types.is_nested(field.type):
                raise ConfigurationError(f"a line of CSV cannot hold the column {field.name}: {field.type}")
        return CsvDecoder(schema, asked.format, asked.null)

    def decode(self, values: Values) -> DecodedValues:
        lines: list[list[str | None] | None] = []
        errors: list[RowError] = []
        for row, value in enumerate(_one_array(values).to_pylist()):
            line: list[str | None] | None = None
            if value is not None:
                try:
                    line = self._line(value)
                except (ValueError, csv.Error) as why:
                    errors.append(RowError(row, str(why)))
            lines.append(line)
        built, wrong = self._built(lines, 0)
        return DecodedValues(built, sorted(errors + wrong))

    def _line(self, value: bytes) -> list[str | None]:
        found = list(csv.reader([value.decode()], strict=True, **self.format))  # type: ignore[arg-type]
        columns = found[0] if found else [""]
        if len(found) > 1 or len(columns) != len(self.schema):
            raise ValueError(f"{len(columns)} columns where the schema has {len(self.schema)}")
        return [None if one == self.null else one for one in columns]

    def _built(
        self, lines: Sequence[list[str | None] | None], first: int
    ) -> tuple[pa.StructArray, list[RowError]]:
        """What does not fit is found by halving: most often everything does."""
        try:
            columns = [
                _typed(pa.array([None if line is None else line[at] for line in lines], pa.string()), field)
                for at, field in enumerate(self.schema)
            ]
            mask = pa.array([line is None for line in lines], pa.bool_())
            return pa.StructArray.from_arrays(columns, fields=list(self.schema), mask=mask), []
        except (pa.ArrowException, ValueError) as why:
            if len(lines) == 1:
                kind = pa.struct(list(self.schema))
                return pa.nulls(1, kind), [RowError(first, str(why))]
        half = len(lines) // 2
        left, left_errors = self._built(lines[:half], first)
        right, right_errors = self._built(lines[half:], first + half)
        return pa.concat_arrays([left, right]), left_errors + right_errors


def _typed(texts: Any, field: pa.Field) -> Any:
    kind = field.type
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind):
        return texts.cast(kind)
    texts = pc.utf8_trim_whitespace(texts)
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(texts)
        known = pc.is_in(lower, pa.array([*_TRUE, *_FALSE, None]))
        if not pc.all(known).as_py():
            raise ValueError(f"{field.name}: expected true or false")
        yes = pc.is_in(lower, pa.array(_TRUE))
        return pc.if_else(pc.is_null(texts), pa.nulls(len(texts), pa.bool_()), yes)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Arrow wants a zone in every text then; a text without one is of UTC.
        has_zone = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
        texts = pc.if_else(has_zone, texts, pc.binary_join_element_wise(texts, "Z", ""))
    try:
        return texts.cast(kind)
    except pa.ArrowException as why:
        raise ValueError(f"{field.name}: {why}") from None


def _one_array(values: Values) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
