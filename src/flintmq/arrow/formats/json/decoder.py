"""JSON objects as rows, each read by msgspec for the columns that are wanted and checked while it is read.

Invariant: a value is a row if it is one JSON object, every column that it has is of that column's type, and none that
may not be null is missing. Members that have no column are passed over, counted or kept, as `Extras` says. Of members
with the same name the last counts. There is no other leniency: text is no number, 1.0 is no integer, NaN is no JSON.
Times are texts of ISO 8601, without a zone in UTC; bytes are base64.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from flintmq.arrow.formats.column_builder import (
    AttributeGetter,
    ColumnBuilder,
    ListColumn,
    MapColumn,
    ScalarColumn,
    StructColumn,
    StructField,
    decode_each,
)
from flintmq.arrow.formats.decoder import DecodedValues, SchemaError, Values
from flintmq.arrow.formats.extra_fields import PASSED_OVER, ExtraFields, Extras
from flintmq.arrow.formats.json.extra_members import ExtraMembers
from flintmq.arrow.formats.json.inference import COLUMNS_MAX, columns_of, merge_kinds
from flintmq.arrow.formats.schema_merge import JSON_TEXT, plain

_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError)
_FLOAT_MAX: Final = 3.4028234663852886e38
_NO_TEXT: Final = msgspec.Raw(b"null")


class JsonDecoder:
    def __init__(self, schema: pa.Schema, extras: Extras = PASSED_OVER) -> None:
        """Columns that may not be null are those that a record must have."""
        if not len(schema):
            raise SchemaError("A schema without columns: name some, as in 'id long, name string'")
        if extras.column is not None and extras.column in schema.names:
            raise SchemaError(
                f"The column {extras.column} is in the schema, so it cannot hold the fields without a column. "
                "Choose another name"
            )
        self._given = schema
        self._extras = extras
        record, self._columns = _struct(list(schema), has_dict=extras.column is not None)
        self._read = msgspec.json.Decoder(record).decode
        self._read_exact: Any = None
        if extras != PASSED_OVER:
            # The same attributes, so both kinds of records have the same columns.
            exact, _ = _struct(list(schema), is_exact=True)
            self._read_exact = msgspec.json.Decoder(exact).decode
            self._members = ExtraMembers(schema)
        if extras.column is not None:
            kept = StructField(extras.column, _KeptGetter(), ScalarColumn(pa.string()))
            self._columns = StructColumn((*self._columns.fields, kept))

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[pa.Schema, Extras]]:
        return JsonDecoder, (self._given, self._extras)

    @property
    def schema(self) -> pa.Schema:
        columns = plain(self._given)
        return (
            columns
            if self._extras.column is None
            else columns.append(pa.field(self._extras.column, pa.string()))
        )

    def decode(self, values: Values) -> DecodedValues:
        if self._read_exact is None:
            return decode_each(self._columns, values, self._read, _REFUSALS)
        reader = _ExtrasReader(self._read, self._read_exact, self._members, self._extras, self._given.names)
        decoded = decode_each(self._columns, values, reader.read, _REFUSALS)
        return decoded._replace(extra=reader.extra())


class _ExtrasReader:
    """Reads values one by one and remembers the members that have no column."""

    def __init__(
        self, read: Any, read_exact: Any, members: ExtraMembers, extras: Extras, known: Sequence[str]
    ) -> None:
        """`known` are the names of the columns."""
        self._known = known
        self._read = read
        self._read_exact = read_exact
        self._members = members
        self._extras = extras
        self._fields = ExtraFields()
        self._counts: dict[tuple[str, ...], int] = {}
        self._kind: Any = None
        self._was_exact = True

    def read(self, value: bytes) -> Any:
        if self._was_exact:
            # Only where most records have no such members: an exception costs more than reading once more.
            try:
                return self._read_exact(value)
            except msgspec.ValidationError:
                self._was_exact = False
        record = self._read(value)
        extras = self._extras
        found = self._members.find(value, keep=extras.column is not None, infer=extras.are_inferred)
        if not found:
            self._was_exact = True
            return record
        # Most records have the same ones: they are counted together, and each by itself at the end.
        self._counts[found.names] = self._counts.get(found.names, 0) + 1
        if found.inner:
            self._fields.add(sorted(found.inner))
        if extras.are_inferred:
            self._kind = merge_kinds(self._kind, found.kind)
            if self._kind is not None and len(self._kind) > COLUMNS_MAX:
                raise SchemaError(
                    f"More than {COLUMNS_MAX} fields have no column: their names seem to be data. Keep them in one "
                    "column instead"
                )
        if found.text is not None:
            record.kept = found.text.decode()
        return record

    def extra(self) -> ExtraFields | None:
        for names, count in self._counts.items():
            self._fields.add(names, count)
        possible = {
            name: kind
            for name, kind in (self._kind or {}).items()
            if name in self._known or name.lower() not in self._extras.reserved
        }
        if possible:
            self._fields.columns = columns_of(possible)
        return self._fields or None


@dataclass(frozen=True, slots=True)
class _KeptGetter:
    """Gets the text of the members that have no column, which records have only if there are some."""

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        return [getattr(one, "kept", None) for one in objects]


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


def _text(raw: msgspec.Raw) -> str | None:
    """UnicodeDecodeError if it is none: msgspec passes over what it gives raw."""
    data = bytes(raw)
    return None if data == b"null" else data.decode()


def _in_utc(time: datetime.datetime) -> datetime.datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)


_SCALARS: Final[dict[pa.DataType, tuple[Any, ScalarColumn]]] = {
    pa.bool_(): (bool, ScalarColumn(pa.bool_())),
    pa.int8(): (_integer(8), ScalarColumn(pa.int8())),
    pa.int16(): (_integer(16), ScalarColumn(pa.int16())),
    pa.int32(): (_integer(32), ScalarColumn(pa.int32())),
    pa.int64(): (_integer(64), ScalarColumn(pa.int64())),
    pa.float32(): (Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)], ScalarColumn(pa.float32())),
    pa.float64(): (float, ScalarColumn(pa.float64())),
    pa.string(): (str, ScalarColumn(pa.string())),
    pa.binary(): (bytes, ScalarColumn(pa.binary())),
    pa.date32(): (datetime.date, ScalarColumn(pa.date32())),
    pa.timestamp("us", "UTC"): (datetime.datetime, ScalarColumn(pa.timestamp("us", "UTC"), _in_utc)),
    pa.timestamp("us"): (
        Annotated[datetime.datetime, msgspec.Meta(tz=False)],
        ScalarColumn(pa.timestamp("us")),
    ),
    JSON_TEXT: (msgspec.Raw, ScalarColumn(pa.string(), _text)),
}


def _struct(
    fields: Sequence[pa.Field], *, is_exact: bool = False, has_dict: bool = False
) -> tuple[Any, StructColumn]:
    """What msgspec reads, and where in that the columns are; an exact one refuses members without a column."""
    declared: list[Any] = []
    members: list[StructField] = []
    # A column may have any name, an attribute may not.
    attributes = [f"column_{at}" for at in range(len(fields))]
    for attribute, field in zip(attributes, fields, strict=True):
        kind, column = _of(field.type, is_exact)
        if not field.nullable:
            declared.append((attribute, kind))
        elif kind is msgspec.Raw:
            declared.append((attribute, kind, _NO_TEXT))
        else:
            declared.append((attribute, kind | None, None))
        members.append(StructField(field.name, AttributeGetter(attribute), column))
    names = {attribute: field.name for attribute, field in zip(attributes, fields, strict=True)}
    record = msgspec.defstruct(
        "Record",
        declared,
        rename=names,
        kw_only=True,
        gc=has_dict,
        dict=has_dict,
        forbid_unknown_fields=is_exact,
    )
    return record, StructColumn(tuple(members))


def _of(kind: pa.DataType, is_exact: bool) -> tuple[Any, ColumnBuilder]:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_decimal(kind):
        return decimal.Decimal, ScalarColumn(kind)
    if pa.types.is_struct(kind) and kind.num_fields:
        return _struct(list(kind), is_exact=is_exact)
    if pa.types.is_list(kind):
        item, column = _of(kind.value_type, is_exact)
        return list[_optional(item)], ListColumn(column)  # type: ignore[misc]
    if pa.types.is_map(kind):
        item, column = _of(kind.item_type, is_exact)
        return dict[str, _optional(item)], MapColumn(ScalarColumn(pa.string()), column)  # type: ignore[misc]
    raise SchemaError(
        f"No column of JSON can be {kind}; the types are those of Spark's DDL, without intervals"
    )


def _optional(kind: Any) -> Any:
    return kind if kind is msgspec.Raw else kind | None
