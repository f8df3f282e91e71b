"""What becomes of records on their way into a table: all of them as they are, or their values decoded to columns.

    shaped = Shaper(decoder).shape(batch)
    shaped.rows, shaped.poison

Invariant: every record is either in `rows` or in `poison`, once, in order. Rows say where they come from: partition,
offset, timestamp and key are always there. A shaper can be pickled: it travels to the workers.
This module must not know tables, files or brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.arrow.codec.decode import COLUMNS, schema_of
from flintmq.arrow.formats.schema_merge import conform
from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    from flintmq.arrow.formats import Decoder

ORIGIN: Final = ("partition", "offset", "timestamp", "key")
"""Columns beside the decoded ones."""
_READ_TO_DECODE: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_POISON_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
ERROR: Final = "error"
POISON: Final = pa.schema([*schema_of(_POISON_COLUMNS), pa.field(ERROR, pa.string())])
"""What is kept of records that cannot be decoded."""


class Shaped(NamedTuple):
    rows: pa.RecordBatch
    poison: pa.RecordBatch | None


class Shaper:
    def __init__(self, decoder: Decoder | None = None, *, into: str | None = None) -> None:
        """`into` is one column for all that is decoded; without it, each has its own."""
        self._decoder = decoder
        self._into = into
        self.schema = schema_of(COLUMNS) if decoder is None else _with_origin(decoder.schema, into)

    @property
    def columns(self) -> tuple[str, ...]:
        """What it must be given."""
        return COLUMNS if self._decoder is None else _READ_TO_DECODE

    @property
    def is_raw(self) -> bool:
        return self._decoder is None

    def shape(self, batch: pa.RecordBatch) -> Shaped:
        if self._decoder is None:
            return Shaped(batch, None)
        decoded = self._decoder.decode(batch.column("value"))
        columns = [batch.column(name) for name in ORIGIN]
        # A record without a value has a row all the same, with nothing in the decoded columns.
        columns += [decoded.rows] if self._into is not None else decoded.rows.flatten()
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not decoded.errors:
            return Shaped(rows, None)
        bad = np.zeros(batch.num_rows, np.bool_)
        bad[[one.row for one in decoded.errors]] = True
        poison = batch.select(_POISON_COLUMNS).filter(pa.array(bad))
        errors = pa.array([one.message for one in decoded.errors], pa.string())
        return Shaped(
            rows.filter(pa.array(~bad)),
            pa.RecordBatch.from_arrays([*poison.columns, errors], schema=POISON),
        )


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
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


def _with_origin(decoded: pa.Schema, into: str | None) -> pa.Schema:
    names: Sequence[str] = decoded.names if into is None else (into,)
    clashing = [name for name in names if name.lower() in ORIGIN]
    if clashing:
        raise ConfigurationError(
            f"the decoded column {clashing[0]} has the name of a column that says where a record comes from "
            f"({', '.join(ORIGIN)}); put what is decoded into a column of its own, such as --into body"
        )
    fields = list(decoded) if into is None else [pa.field(into, pa.struct(list(decoded)))]
    return pa.schema([*schema_of(ORIGIN), *fields])
