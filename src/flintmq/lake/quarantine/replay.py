"""`lake replay --quarantined`: records that can be decoded by now leave the quarantine and become rows of the table.

    replay_quarantined(spark, source)

    records decode → files with their rows at their places → one commit of files and mark → the quarantine loses them

Invariant: a record is in the quarantine or a row of the table, never both for whoever minds the mark, and never
twice: the table's commit decides, from the state that was planned on. Who was killed half way leaves files that the
next one takes, or a mark that the next replay or sync completes. A sync or a compaction may go on meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from flintmq.arrow.formats.decoder import NewSchemas
from flintmq.lake.fan_out import OnProgress, map_in_workers, no_progress
from flintmq.lake.limits import QUARANTINE_LIMITS, QuarantineLimits
from flintmq.lake.quarantine.insertion import InsertionTask, insert_rows
from flintmq.lake.quarantine.mark import REPLAYED, ReplayMark
from flintmq.lake.quarantine.open import QuarantinedTopic
from flintmq.lake.quarantine.planning import TablePartition, plan_insertions
from flintmq.lake.quarantine.table import BEFORE_ALL, Position
from flintmq.lake.syncing.options import Decoding
from flintmq.lake.syncing.quarantine import check_not_further
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import RowDecoder, conformed
from flintmq.lake.syncing.table_decoding import (
    DECODING_PROPERTY,
    decoding_text,
    kept_decoding,
    row_decoder_of,
)
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.partitioning import split_by_partition
from flintmq.lake.tables.properties import REBUILT
from flintmq.lake.tables.schema_evolution import is_same_schema
from flintmq.lake.tables.table import Conflict, TableChange, TableError, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReplay:
    replayed: int
    left: int
    """Open records that still cannot be decoded."""
    files: int
    """Written."""


def replay_quarantined(
    spark: SparkSession | LazySession,
    source: QuarantinedTopic,
    *,
    registry: str | None = None,
    on_progress: OnProgress = no_progress,
    limits: QuarantineLimits = QUARANTINE_LIMITS,
) -> QuarantineReplay:
    """`registry` is the schema registry's address, if that has changed, or a password."""
    under_way = _Replay(spark, source, registry, on_progress, limits)
    while not under_way.is_done:
        under_way.advance()
    return QuarantineReplay(replayed=under_way.replayed, left=under_way.left, files=under_way.files)


@dataclass(slots=True)
class _Portion:
    """Records that go into the table with one commit."""

    rows: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """By partition of the topic, in order."""
    count: int = 0
    size: int = 0
    undecodable: int = 0
    last: Position = BEFORE_ALL
    """That was looked at."""
    is_last: bool = True

    def offsets(self) -> dict[int, list[int]]:
        return {
            partition: [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            for partition, batches in self.rows.items()
        }


class _Replay:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        source: QuarantinedTopic,
        registry: str | None,
        on_progress: OnProgress,
        limits: QuarantineLimits,
    ) -> None:
        self.replayed = self.left = self.files = 0
        self.is_done = False
        self._spark = spark
        self._source = source
        self._registry = registry
        self._on_progress = on_progress
        self._limits = limits
        self._after = BEFORE_ALL
        self._learned: tuple[int, ...] = ()

    def advance(self) -> None:
        """Bring in the next records that can be decoded, with one commit."""
        for _ in range(self._limits.attempts_max):
            state = self._state()
            decoding = self._decoding(state)
            try:
                portion = self._portion(state, row_decoder_of(decoding))
            except NewSchemas as error:
                self._learned += tuple(sorted(set(error.ids) - set(decoding.ids)))
                continue
            if portion.count:
                try:
                    mark, files = self._commit(state, portion, decoding)
                except Conflict:
                    logger.info(
                        "%s has changed; its quarantine is replayed again", self._source.table.location
                    )
                    continue
                self._source.quarantine.complete(mark)
                self.replayed += portion.count
                self.files += files
                logger.info(
                    "%s: %d quarantined records are rows now", self._source.table.location, portion.count
                )
            self.left += portion.undecodable
            self._after = portion.last
            self.is_done = portion.is_last
            return
        raise TableError(
            f"{self._source.table.location} was changed by others {self._limits.attempts_max} times in a row while "
            "quarantined records were brought in; pause who writes to it, then run the replay again"
        )

    def _state(self) -> TableState:
        """Return the table's state, whose last mark is complete."""
        source = self._source
        state = source.table.state()
        if state is None:
            raise TableError(f"There is no table of {source.topic} at {source.table.location}.")
        if kept_decoding(state).is_raw:
            raise TableError(
                f"{source.table.location} has records as they are (--decode raw); none of them is quarantined."
            )
        found = source.quarantine.state()
        if found is None:
            raise TableError(
                f"There is no quarantine table at {source.quarantine.location}. Records that were quarantined in a "
                "topic (--quarantine topic:NAME) are not replayed from there: the topic cannot say which of them "
                "the table has. To decode them again, rebuild the table with flintmq lake rebuild."
            )
        check_not_further(found, source.topic, state.progress.get(source.topic), source.quarantine.location)
        if found.properties.get(REBUILT) != state.properties.get(REBUILT):
            raise TableError(
                f"{source.table.location} was rebuilt, and its quarantine is not complete; sync the table first."
            )
        source.quarantine.complete(ReplayMark.of(state))
        return state

    def _decoding(self, state: TableState) -> Decoding:
        kept = kept_decoding(state)
        new = tuple(one for one in self._learned if one not in kept.ids)
        return replace(kept, registry=self._registry or kept.registry, ids=(*kept.ids, *new))

    def _portion(self, state: TableState, row_decoder: RowDecoder) -> _Portion:
        source, portion = self._source, _Portion(last=self._after)
        found = source.quarantine.state()
        progress = state.progress.get(source.topic)
        if found is None or progress is None:
            return portion
        batches = source.quarantine.records(
            found, ReplayMark.of(state), topic_id=progress.topic_id, after=self._after
        )
        for batch in batches:
            if portion.count >= self._limits.records_max or portion.size >= self._limits.bytes_max:
                portion.is_last = False
                break
            partition = batch.column("partition")[0].as_py()
            decoded = row_decoder.decode(batch.select(row_decoder.columns))
            rows = decoded.rows
            portion.undecodable += batch.num_rows - rows.num_rows
            portion.last = Position(partition, batch.column("offset")[-1].as_py())
            if rows.num_rows:
                portion.rows.setdefault(partition, []).append(rows)
                portion.count += rows.num_rows
                portion.size += rows.nbytes
        return portion

    def _commit(self, state: TableState, portion: _Portion, decoding: Decoding) -> tuple[ReplayMark, int]:
        """Conflict if the table is not in this state any more."""
        source = self._source
        text = decoding_text(decoding)
        schema = source.table.evolved(state, row_decoder_of(decoding).schema)
        layout = FileLayout(store=source.store, schema=schema, partitioning=state.partitioning)
        topic_id = state.progress[source.topic].topic_id
        rows = _by_table_partition(portion, layout)
        insertions = plan_insertions(
            source.table.files(state),
            {key: some.column("offset").to_pylist() for key, some in rows.items()},
            topic_id=topic_id,
        )
        tasks = []
        for one in insertions:
            wanted = rows[one.partition, one.values]
            chosen = [offset in set(one.offsets) for offset in wanted.column("offset").to_pylist()]
            tasks.append(
                InsertionTask(
                    insertion=one,
                    rows=wanted.filter(pa.array(chosen)),
                    layout=layout,
                    topic=source.topic,
                    topic_id=topic_id,
                    decoding=text,
                )
            )
        added = map_in_workers(
            self._spark,
            tasks,
            insert_rows,
            DataFile,
            work_bytes=portion.size + sum(file.size for one in insertions for file in one.inputs),
            on_progress=self._on_progress,
        )
        mark = ReplayMark.after(ReplayMark.of(state), new_id(), portion.offsets())
        source.table.commit(
            TableChange(
                base=state,
                added=added,
                removed=[file for one in insertions for file in one.inputs],
                schema=None if is_same_schema(schema, state.schema) else schema,
                # Named although it is as it was: rows are added, and files are not only merged.
                progress=dict(state.progress),
                properties={**state.properties, DECODING_PROPERTY: text, REPLAYED: mark.text()},
            )
        )
        return mark, len(added)


def _by_table_partition(portion: _Portion, layout: FileLayout) -> Mapping[TablePartition, pa.Table]:
    found: dict[TablePartition, list[pa.RecordBatch]] = {}
    for partition, batches in portion.rows.items():
        for batch in batches:
            for values, rows in split_by_partition(conformed(batch, layout.schema), layout.partitioning):
                if rows.num_rows:
                    found.setdefault((partition, values), []).append(rows)
    return {key: pa.Table.from_batches(batches, schema=layout.schema) for key, batches in found.items()}
