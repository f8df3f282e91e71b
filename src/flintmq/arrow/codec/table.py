"""The rows of a part, as a record batch of Arrow with the columns that are wanted.

Invariant: a row is made of every record whose offset is in the range, and of no other; a column that is not wanted is
not made. What is damaged is a CorruptionError that names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.arrow.codec import arrays, record_fields
from flintmq.arrow.codec.batches import BatchPart, BatchSource
from flintmq.arrow.codec.fields import Fields
from flintmq.arrow.codec.headers import Headers
from flintmq.arrow.codec.record_spans import Spans, walk
from flintmq.arrow.codec.varints import BadRow, Flags, refuse

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": arrays.TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": arrays.HEADERS,
}
_CONTENTS: Final = frozenset(("key", "value", "headers"))
_READS_AT_ONCE: Final = record_fields.IS_COMPILED
"""Uncompiled, reading in steps over columns is far cheaper."""

Numbers = npt.NDArray[np.int64]


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """ValueError if there is no such column."""
    for name in columns:
        if name not in _TYPES:
            raise ValueError(f"There is no column {name!r}; there are {', '.join(COLUMNS)}.")
    return pa.schema([(name, _TYPES[name]) for name in columns])


class RecordTable:
    """The columns and the range that are wanted of a partition."""

    def __init__(
        self,
        source: BatchSource,
        columns: Sequence[str],
        *,
        start_offset: int,
        end_offset: int | None,
        headers_max: int,
    ) -> None:
        self.source = source
        self.schema = schema_of(columns)
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._headers_max = headers_max
        self._with_contents = not _CONTENTS.isdisjoint(columns)

    def no_rows(self) -> pa.RecordBatch:
        # Not from a list: that would import pandas, if it is there.
        return pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in self.schema], schema=self.schema)

    def rows_of(self, part: BatchPart) -> pa.RecordBatch:
        fields = self._fields_at_once(part)
        batch_of = np.repeat(np.arange(len(part.counts)), part.counts)
        try:
            if fields is None:
                spans = self._spans(part)
                fields = Fields.in_steps(part.payload, spans, with_contents=self._with_contents)
            self._check_headers(part, fields)
            offsets = part.base_offsets[batch_of] + fields.offset_deltas
            inside = self._inside(offsets)
            if not inside.all():
                fields.keep(inside)
                offsets, batch_of = offsets[inside], batch_of[inside]
            rows = _Rows(part, fields, offsets, batch_of)
            columns = [self._column(name, rows) for name in self.schema.names]
        except BadRow as bad:
            raise self.source.damage(
                int(part.base_offsets[batch_of[bad.row]]), "holds a record that makes no sense"
            ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _fields_at_once(self, part: BatchPart) -> Fields | None:
        """Return None if that does not pay, or if there may be something wrong, which the steps find."""
        if not _READS_AT_ONCE:
            return None
        found = record_fields.read(
            part.payload.data,
            part.starts.tolist(),
            part.ends.tolist(),
            part.counts.tolist(),
            with_contents=self._with_contents,
        )
        return None if found is None else Fields.of(found)

    def _spans(self, part: BatchPart) -> Spans:
        try:
            return walk(part.payload, part.starts, part.ends, part.counts)
        except BadRow as bad:
            why = f"does not hold exactly the {part.counts[bad.row]} records that it counts"
            raise self.source.damage(int(part.base_offsets[bad.row]), why) from None

    def _check_headers(self, part: BatchPart, fields: Fields) -> None:
        """Raise CorruptionError if a batch has too many headers."""
        if "headers" not in self.schema.names or not fields.header_counts.any():
            return
        before = np.concatenate(([0], np.cumsum(fields.header_counts)))
        firsts = np.concatenate(([0], np.cumsum(part.counts)))
        in_batches = np.diff(before[firsts])
        if in_batches.max() > self._headers_max:
            batch = int(in_batches.argmax())
            raise self.source.damage(
                int(part.base_offsets[batch]),
                f"has {in_batches[batch]} headers; up to {self._headers_max} are read",
            )

    def _inside(self, offsets: Numbers) -> Flags:
        inside = offsets >= self._start_offset
        return inside if self._end_offset is None else inside & (offsets < self._end_offset)

    def _column(self, name: str, rows: _Rows) -> Any:
        count = len(rows.offsets)
        if name == "topic":
            return arrays.repeated_text(self.source.topic, count)
        if name == "partition":
            return arrays.numbers(np.full(count, self.source.partition, np.int32))
        if name == "offset":
            return arrays.numbers(rows.offsets)
        return rows.column(name)


class _Rows(NamedTuple):
    """The records that are in the range."""

    part: BatchPart
    fields: Fields
    offsets: Numbers
    batch_of: Numbers

    def column(self, name: str) -> Any:
        part, fields = self.part, self.fields
        if name == "key":
            return arrays.binary(part.payload, fields.keys)
        if name == "value":
            return arrays.binary(part.payload, fields.values)
        if name == "headers":
            counts = fields.header_counts
            if not counts.any():
                return pa.nulls(len(counts), arrays.HEADERS)
            headers = Headers(part.payload, fields.header_positions, fields.ends, counts)
            return arrays.headers(part.payload, counts, headers)
        if name == "timestampType":
            return arrays.numbers(part.append_times.astype(np.int32)[self.batch_of])
        return arrays.timestamps(self._timestamps())

    def _timestamps(self) -> Numbers:
        part = self.part
        base, deltas = part.base_timestamps[self.batch_of], self.fields.timestamp_deltas
        times = base + deltas
        refuse(((base ^ times) & (deltas ^ times)) < 0)  # more than 64 bits
        if part.append_times.any():
            times = np.where(part.append_times[self.batch_of], part.max_timestamps[self.batch_of], times)
        return times
