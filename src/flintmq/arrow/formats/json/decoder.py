"""JSON objects as rows, each read by msgspec for the columns that are wanted and checked while it is read.

Invariant: a value is a row if it is one JSON object, every column that it has is of that column's type, and none that
may not be null is missing. Members that are no columns are passed over. Of members with the same name the last
counts. There is no other leniency: text is no number, 1.0 is no integer, NaN is no JSON.
Times are texts of ISO 8601, without a zone in UTC; bytes are base64.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
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
from flintmq.arrow.formats.schema_merge import JSON_TEXT, plain

_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError)
_FLOAT_MAX: Final = 3.4028234663852886e38
_NO_TEXT: Final = msgspec.Raw(b"null")


class JsonDecoder:
    def __init__(self, schema: pa.Schema) -> None:
        """Columns that may not be null are those that a record must have."""
        if not len(schema):
            raise SchemaError("A schema without columns: name some, as in 'id long, name string'")
        self._schema = schema
        self._record, self._columns = _struct(list(schema))
        self._read = msgspec.json.Decoder(self._record).decode

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[pa.Schema]]:
        return JsonDecoder, (self._schema,)

    @property
    def schema(self) -> pa.Schema:
        return plain(self._schema)

    def decode(self, values: Values) -> DecodedValues:
        return decode_each(self._columns, values, self._read, _REFUSALS)


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


def _struct(fields: Sequence[pa.Field]) -> tuple[Any, StructColumn]:
    """What msgspec reads, and where in that the columns are."""
    declared: list[Any] = []
    members: list[StructField] = []
    # A column may have any name, an attribute may not.
    attributes = [f"column_{at}" for at in range(len(fields))]
    for attribute, field in zip(attributes, fields, strict=True):
        kind, column = _of(field.type)
        if not field.nullable:
            declared.append((attribute, kind))
        elif kind is msgspec.Raw:
            declared.append((attribute, kind, _NO_TEXT))
        else:
            declared.append((attribute, kind | None, None))
        members.append(StructField(field.name, AttributeGetter(attribute), column))
    names = {attribute: field.name for attribute, field in zip(attributes, fields, strict=True)}
    return msgspec.defstruct("Record", declared, rename=names, kw_only=True, gc=False), StructColumn(
        tuple(members)
    )


def _of(kind: pa.DataType) -> tuple[Any, ColumnBuilder]:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_decimal(kind):
        return decimal.Decimal, ScalarColumn(kind)
    if pa.types.is_struct(kind) and kind.num_fields:
        return _struct(list(kind))
    if pa.types.is_list(kind):
        item, column = _of(kind.value_type)
        return list[_optional(item)], ListColumn(column)  # type: ignore[misc]
    if pa.types.is_map(kind):
        item, column = _of(kind.item_type)
        return dict[str, _optional(item)], MapColumn(ScalarColumn(pa.string()), column)  # type: ignore[misc]
    raise SchemaError(
        f"No column of JSON can be {kind}; the types are those of Spark's DDL, without intervals"
    )


def _optional(kind: Any) -> Any:
    return kind if kind is msgspec.Raw else kind | None
