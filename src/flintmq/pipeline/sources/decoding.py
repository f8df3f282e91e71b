"""Records become rows in the worker that reads them: decoded, with their origin, the bad ones set aside.

    decoding.schema                       the columns of a source
    for rows in decoding.rows(topic, partition, batches): …

Invariant: every record is a row, or is dropped, or is a dead letter, or fails the task: as the source says. A record
without a value is a row with nothing in its decoded columns. A SourceDecoding can be pickled: it travels to workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from flintmq.arrow.codec.decode import schema_of
from flintmq.arrow.formats import NewSchemas
from flintmq.arrow.formats.decoder import RowError
from flintmq.arrow.value_decoding import ValueDecoder
from flintmq.errors import FlintError
from flintmq.pipeline.dead_letters.staging import DeadLetterBuffer, DeadLetterStage, whole_records
from flintmq.pipeline.spec.origin import KEY, OFFSET, ORIGIN, PARTITION, TIMESTAMP, TOPIC
from flintmq.pipeline.spec.parts import FAIL

_COLUMN_OF: Final = {name: name.removeprefix("_") for name in ORIGIN}


class UndecodableRecord(FlintError):
    """A record that cannot be decoded, where that is an error."""


class RecordOrigins(NamedTuple):
    """Where the records of a batch come from."""

    topics: Any
    partitions: Any
    offsets: Any

    def at(self, row: int) -> tuple[str, int, int]:
        return self.topics[row].as_py(), self.partitions[row].as_py(), self.offsets[row].as_py()

    def describe(self, row: int) -> str:
        topic, partition, offset = self.at(row)
        return f"{topic}-{partition} offset {offset}"


@dataclass(frozen=True)
class SourceDecoding:
    source: str
    """Its name in the pipeline."""
    values: ValueDecoder
    origin: tuple[str, ...]
    """The columns of the origin that rows have."""
    on_error: str
    stage: DeadLetterStage | None = None
    """Where records that are dropped or become dead letters are told of; None: they are only left out."""

    @property
    def schema(self) -> pa.Schema:
        of_record = schema_of(tuple(_COLUMN_OF[name] for name in self.origin))
        origin_fields = [field.with_name(name) for name, field in zip(self.origin, of_record, strict=True)]
        return pa.schema([*self.values.fields, *origin_fields])

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be read of each record; topic and partition are those of the task."""
        wanted = ("value", "offset", *(_COLUMN_OF[name] for name in self.origin if name in (KEY, TIMESTAMP)))
        # All of a record, where it may become a dead letter.
        record = () if self.stage is None else ("key", "headers")
        return tuple(dict.fromkeys((*wanted, *record)))

    def rows(self, topic: str, partition: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buffer = None if self.stage is None else DeadLetterBuffer(self.stage)
        for read in batches:
            batch, origins = self.with_origins(topic, partition, read)
            if batch.num_rows:
                yield from self._decoded_rows(batch, origins, buffer)
        if buffer is not None:
            # Before the task ends: a batch is committed only after all its tasks.
            buffer.finish()

    def with_origins(
        self, topic: str, partition: int, batch: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, RecordOrigins]:
        """The records to decode, and where they come from."""
        count = batch.num_rows
        return batch, RecordOrigins(
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            batch.column("offset"),
        )

    def _decoded_rows(
        self, batch: pa.RecordBatch, origins: RecordOrigins, buffer: DeadLetterBuffer | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            decoded = self.values.decode(batch.column("value"))
        except NewSchemas as new:
            ids = ", ".join(map(str, sorted(new.ids)))
            raise UndecodableRecord(
                f"`{self.source}`: {origins.describe(0)} has, or is followed by, values of the schemas {ids}, with "
                "columns that are new; start the pipeline again, and the source has them"
            ) from new
        origin = (_origin(name, batch, origins) for name in self.origin)
        rows = pa.RecordBatch.from_arrays([*decoded.columns, *origin], schema=self.schema)
        if decoded.errors:
            self._report(batch, origins, decoded.errors, buffer)
            rows = rows.filter(decoded.is_good)
        if rows.num_rows:
            yield rows

    def _report(
        self,
        batch: pa.RecordBatch,
        origins: RecordOrigins,
        errors: list[RowError],
        buffer: DeadLetterBuffer | None,
    ) -> None:
        if self.on_error == FAIL:
            first = errors[0]
            raise UndecodableRecord(
                f"`{self.source}`: {origins.describe(first.row)} cannot be decoded: {first.message}; "
                "correct the schema, or say what becomes of such records with `otherwise`"
            )
        if buffer is None:
            return
        rows = pa.array([one.row for one in errors], pa.int64())
        names = [
            *(column.take(rows) for column in origins),
            pa.repeat(pa.scalar(self.source, pa.string()), len(errors)),
            pa.array([one.message for one in errors], pa.string()),
        ]
        buffer.add(self.staged(names, batch.take(rows)))

    def staged(self, names: list[Any], records: pa.RecordBatch) -> pa.RecordBatch:
        key, value, headers = (records.column(name) for name in ("key", "value", "headers"))
        return whole_records(names, key=key, value=value, headers=headers)


def _origin(name: str, batch: pa.RecordBatch, origins: RecordOrigins) -> Any:
    if name == TOPIC:
        return origins.topics
    if name == PARTITION:
        return origins.partitions
    return origins.offsets if name == OFFSET else batch.column(_COLUMN_OF[name])
