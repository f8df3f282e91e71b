"""Makes rows of a table from records: the records as they are, or their values decoded to columns.

    decoded = RowDecoder(decoder).decode(batch)
    decoded.rows, decoded.poison

Invariant: every record is either in `rows` or in `poison`, once, in order. Rows say where they come from: partition,
offset, timestamp and key are always there. A RowDecoder can be pickled: it travels to the workers.
This module must not know tables, files or brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from flintmq.arrow.codec.decode import COLUMNS, schema_of
from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.arrow.formats.schema_merge import conform, paths
from flintmq.arrow.value_decoding import ValueDecoder
from flintmq.errors import ConfigurationError

ORIGIN: Final = ("partition", "offset", "timestamp", "key")
"""Columns beside the decoded ones."""
_READ_TO_DECODE: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_POISON_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
ERROR: Final = "error"
POISON: Final = pa.schema([*schema_of(_POISON_COLUMNS), pa.field(ERROR, pa.string())])
"""What is kept of records that cannot be decoded."""


class DecodedRows(NamedTuple):
    rows: pa.RecordBatch
    poison: pa.RecordBatch | None
    extra: ExtraFields | None = None
    """Fields of the records that no column takes, if the decoder counts them."""


class RowDecoder:
    def __init__(self, decoder: ValueDecoder | None = None) -> None:
        """Without a decoder records are taken as they are."""
        self._decoder = decoder
        self.schema = schema_of(COLUMNS) if decoder is None else _with_origin(decoder.fields)

    @property
    def columns(self) -> tuple[str, ...]:
        """What it must be given."""
        return COLUMNS if self._decoder is None else _READ_TO_DECODE

    @property
    def is_raw(self) -> bool:
        return self._decoder is None

    @property
    def field_paths(self) -> frozenset[str]:
        """The fields of values that have a column."""
        return frozenset(() if self._decoder is None else paths(self._decoder.decoder.schema))

    def decode(self, batch: pa.RecordBatch) -> DecodedRows:
        if self._decoder is None:
            return DecodedRows(batch, None)
        decoded = self._decoder.decode(batch.column("value"))
        columns = [batch.column(name) for name in ORIGIN]
        # A record without a value has a row all the same, with nothing in the decoded columns.
        rows = pa.RecordBatch.from_arrays([*columns, *decoded.columns], schema=self.schema)
        if not decoded.errors:
            return DecodedRows(rows, None, decoded.extra)
        poison = batch.select(_POISON_COLUMNS).take(pa.array([one.row for one in decoded.errors], pa.int64()))
        errors = pa.array([one.message for one in decoded.errors], pa.string())
        return DecodedRows(
            rows.filter(decoded.is_good),
            pa.RecordBatch.from_arrays([*poison.columns, errors], schema=POISON),
            decoded.extra,
        )


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with a table's columns, which are these and perhaps more, of these types or wider ones."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> Any:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    return conform(batch.column(at), field.type)


def _with_origin(fields: Sequence[pa.Field]) -> pa.Schema:
    clashing = [one.name for one in fields if one.name.lower() in ORIGIN]
    if clashing:
        raise ConfigurationError(
            f"the decoded column {clashing[0]} has the name of a column that says where a record comes from "
            f"({', '.join(ORIGIN)}); put what is decoded into a column of its own, such as --into body"
        )
    return pa.schema([*schema_of(ORIGIN), *fields])
