"""The rows of a part, as a record batch of Arrow with the columns that are wanted.

Invariant: a row is made of every record whose offset is in the range, and of no other; a column that is not wanted is
not made. What is damaged is a CorruptionError that names topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.arrow.codec import arrays, record_fields
from flintmq.arrow.codec.batches import BatchPart, BatchSource
from flintmq.arrow.codec.fields import Fields
from flintmq.arrow.codec.headers import Headers
from flintmq.arrow.codec.record_fields import BatchFields
from flintmq.arrow.codec.record_spans import Spans, walk
from flintmq.arrow.codec.varints import BadRow, Flags, Positions, refuse
from flintmq.errors import CorruptionError

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
        fields = self._fields_at_once(part) or self._fields_in_steps(part)
        self._check_headers(part, fields)
        inside = self._inside(fields.offsets)
        kept = None
        if not inside.all():
            kept = np.flatnonzero(inside)
            fields.keep(inside)
        try:
            columns = [self._column(name, part, fields, kept) for name in self.schema.names]
        except BadRow as bad:
            raise self._senseless(part, bad.row if kept is None else int(kept[bad.row])) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _fields_at_once(self, part: BatchPart) -> Fields | None:
        """Return None if that does not pay, or if there may be something wrong, which the steps find."""
        if not _READS_AT_ONCE:
            return None
        batches = BatchFields(
            part.starts.tolist(),
            part.ends.tolist(),
            part.counts.tolist(),
            part.base_offsets.tolist(),
            part.base_timestamps.tolist(),
            [
                time if is_append else None
                for time, is_append in zip(
                    part.max_timestamps.tolist(), part.append_times.tolist(), strict=True
                )
            ],
        )
        found = record_fields.read(part.payload.data, batches, with_contents=self._with_contents)
        return None if found is None else Fields.of(found)

    def _fields_in_steps(self, part: BatchPart) -> Fields:
        spans = self._spans(part)
        batch_of = np.repeat(np.arange(len(part.counts)), part.counts)
        try:
            fields = Fields.in_steps(part.payload, spans, with_contents=self._with_contents)
            base, deltas = part.base_timestamps[batch_of], fields.timestamps
            times = base + deltas
            refuse(((base ^ times) & (deltas ^ times)) < 0)  # more than 64 bits
        except BadRow as bad:
            raise self._senseless(part, bad.row) from None
        if part.append_times.any():
            times = np.where(part.append_times[batch_of], part.max_timestamps[batch_of], times)
        fields.timestamps = times
        fields.offsets += part.base_offsets[batch_of]
        return fields

    def _senseless(self, part: BatchPart, record: int) -> CorruptionError:
        batch = int(np.searchsorted(np.cumsum(part.counts), record, side="right"))
        return self.source.damage(int(part.base_offsets[batch]), "holds a record that makes no sense")

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

    def _column(self, name: str, part: BatchPart, fields: Fields, kept: Positions | None) -> Any:
        """`kept` are the records that are in the range, if not all are."""
        count = len(fields.offsets)
        if name == "topic":
            return arrays.repeated_text(self.source.topic, count)
        if name == "partition":
            return arrays.numbers(np.full(count, self.source.partition, np.int32))
        if name == "offset":
            return arrays.numbers(fields.offsets)
        if name == "key":
            return arrays.binary(part.payload, fields.keys)
        if name == "value":
            return arrays.binary(part.payload, fields.values)
        if name == "headers":
            counts = fields.header_counts
            if not counts.any():
                return pa.nulls(count, arrays.HEADERS)
            headers = Headers(part.payload, fields.header_positions, fields.ends, counts)
            return arrays.headers(part.payload, counts, headers)
        if name == "timestampType":
            if not part.append_times.any():
                return arrays.numbers(np.zeros(count, np.int32))
            kinds = np.repeat(part.append_times.astype(np.int32), part.counts)
            return arrays.numbers(kinds if kept is None else kinds[kept])
        return arrays.timestamps(fields.timestamps)
