"""Records become rows in the worker that reads them: decoded, with their origin, the bad ones set aside.

    shaping.schema                       the columns of a source
    for rows in shaping.rows(topic, partition, batches): …

Invariant: every record is a row, or is dropped, or is a dead letter, or fails the task: as the source says. A record
without a value is a row with nothing in its decoded columns. A Shaping can be pickled: it travels to the workers.
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
from flintmq.pipeline.dead_letters.staging import Gathering, Stage, whole
from flintmq.pipeline.spec.origin import KEY, OFFSET, ORIGIN, PARTITION, TIMESTAMP, TOPIC
from flintmq.pipeline.spec.parts import FAIL

_COLUMN_OF: Final = {name: name.removeprefix("_") for name in ORIGIN}


class UndecodableRecord(FlintError):
    """A record that cannot be decoded, where that is an error."""


class Places(NamedTuple):
    """Where the records of a batch come from."""

    topics: Any
    partitions: Any
    offsets: Any

    def at(self, row: int) -> tuple[str, int, int]:
        return self.topics[row].as_py(), self.partitions[row].as_py(), self.offsets[row].as_py()

    def named(self, row: int) -> str:
        topic, partition, offset = self.at(row)
        return f"{topic}-{partition} offset {offset}"


@dataclass(frozen=True)
class Shaping:
    source: str
    """Its name in the pipeline."""
    values: ValueDecoder
    origin: tuple[str, ...]
    """The columns of the origin that rows have."""
    otherwise: str
    stage: Stage | None = None
    """Where records that are dropped or become dead letters are told of; None: they are only left out."""

    @property
    def schema(self) -> pa.Schema:
        of_record = schema_of(tuple(_COLUMN_OF[name] for name in self.origin))
        named = [field.with_name(name) for name, field in zip(self.origin, of_record, strict=True)]
        return pa.schema([*self.values.fields, *named])

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be read of each record; topic and partition are those of the task."""
        wanted = ("value", "offset", *(_COLUMN_OF[name] for name in self.origin if name in (KEY, TIMESTAMP)))
        # All of a record, where it may become a dead letter.
        record = () if self.stage is None else ("key", "headers")
        return tuple(dict.fromkeys((*wanted, *record)))

    def rows(self, topic: str, partition: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathering = None if self.stage is None else Gathering(self.stage)
        for read in batches:
            batch, places = self.placed(topic, partition, read)
            if batch.num_rows:
                yield from self._shaped(batch, places, gathering)
        if gathering is not None:
            # Before the task ends: a batch is committed only after all its tasks.
            gathering.finish()

    def placed(self, topic: str, partition: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Places]:
        """The records to decode, and where they come from."""
        count = batch.num_rows
        return batch, Places(
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            batch.column("offset"),
        )

    def _shaped(
        self, batch: pa.RecordBatch, places: Places, gathering: Gathering | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            decoded = self.values.decode(batch.column("value"))
        except NewSchemas as new:
            ids = ", ".join(map(str, sorted(new.ids)))
            raise UndecodableRecord(
                f"`{self.source}`: {places.named(0)} has, or is followed by, values of the schemas {ids}, with "
                "columns that are new; start the pipeline again, and the source has them"
            ) from new
        origin = (_origin(name, batch, places) for name in self.origin)
        rows = pa.RecordBatch.from_arrays([*decoded.columns, *origin], schema=self.schema)
        if decoded.errors:
            self._tell(batch, places, decoded.errors, gathering)
            rows = rows.filter(decoded.is_good)
        if rows.num_rows:
            yield rows

    def _tell(
        self, batch: pa.RecordBatch, places: Places, errors: list[RowError], gathering: Gathering | None
    ) -> None:
        if self.otherwise == FAIL:
            first = errors[0]
            raise UndecodableRecord(
                f"`{self.source}`: {places.named(first.row)} cannot be decoded: {first.message}; "
                "correct the schema, or say what becomes of such records with `otherwise`"
            )
        if gathering is None:
            return
        rows = pa.array([one.row for one in errors], pa.int64())
        names = [
            *(column.take(rows) for column in places),
            pa.repeat(pa.scalar(self.source, pa.string()), len(errors)),
            pa.array([one.message for one in errors], pa.string()),
        ]
        gathering.add(self.staged(names, batch.take(rows)))

    def staged(self, names: list[Any], records: pa.RecordBatch) -> pa.RecordBatch:
        key, value, headers = (records.column(name) for name in ("key", "value", "headers"))
        return whole(names, key=key, value=value, headers=headers)


def _origin(name: str, batch: pa.RecordBatch, places: Places) -> Any:
    if name == TOPIC:
        return places.topics
    if name == PARTITION:
        return places.partitions
    return places.offsets if name == OFFSET else batch.column(_COLUMN_OF[name])
