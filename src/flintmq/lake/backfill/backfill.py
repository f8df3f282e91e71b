"""`lake backfill`: rows that were in the table before a column was added get its values from the topic.

    for one in backfill(spark, options):
        one.filled, one.gone

    plan files → workers rewrite them → one commit puts them in the place of theirs and says how far it has come

Invariant: each row is in the table once at every moment, and nothing changes but the columns that are filled. Who was
killed half way has committed some files, and the next one goes on behind them. A sync or a compaction may go on
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flintmq.arrow.cluster_client import client_of
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ConfigurationError
from flintmq.lake.backfill.fill import FilledFile, FillTask, fill_file
from flintmq.lake.backfill.planning import PlannedFill, filled_up_to, plan_fills
from flintmq.lake.fan_out import OnProgress, map_in_workers, no_progress
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.column_notes import OpenRanges, open_backfill, with_backfilled, with_open_columns
from flintmq.lake.syncing.options import SyncOptions
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import ORIGIN
from flintmq.lake.syncing.synced_table import table_of
from flintmq.lake.syncing.table_decoding import DECODING_PROPERTY, kept_decoding, row_decoder_of
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.properties import BACKFILLED
from flintmq.lake.tables.table import Conflict, TableChange, TableError, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)

FILES_PER_COMMIT: Final = 256
_RECORD_BYTES: Final = 200
"""A guess: what a record takes in the topic."""
_REPLANS_MAX: Final = 20
"""In a row, because others changed the table."""


@dataclass(slots=True, kw_only=True)
class BackfillReport:
    topic: str
    table: str
    columns: tuple[str, ...]
    filled: int = 0
    """Rows whose records the topic had."""
    gone: int = 0
    """Rows whose records the topic does not hold any more; their new columns stay null."""
    unfit: int = 0
    """Rows whose records do not fit the new columns, which stay null."""
    files: int = 0
    commits: int = 0


def backfill(
    spark: SparkSession | LazySession,
    options: SyncOptions,
    *,
    columns: Sequence[str] = (),
    registry: str | None = None,
    on_progress: OnProgress = no_progress,
    files_per_commit: int = FILES_PER_COMMIT,
) -> list[BackfillReport]:
    """Fill the tables of these topics: columns that were added later, or those that are named, in all rows.

    `registry` is the schema registry's address, if that has changed, or a password.
    """
    with client_of(options.source) as client:
        return [
            _Backfill(spark, client, options, topic, columns, registry, files_per_commit).run(on_progress)
            for topic in options.topics
        ]


class _Backfill:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        client: ClusterClient,
        options: SyncOptions,
        topic: str,
        columns: Sequence[str],
        registry: str | None,
        files_per_commit: int,
    ) -> None:
        self._spark = spark
        self._client = client
        self._options = options
        self._topic = topic
        self._columns = columns
        self._registry = registry
        self._files_per_commit = files_per_commit
        self._table = table_of(options, topic)

    def run(self, on_progress: OnProgress) -> BackfillReport:
        state = self._opened()
        report = BackfillReport(
            topic=self._topic, table=self._table.location, columns=tuple(sorted(self._ranges(state)))
        )
        replans = done = 0
        while ranges := self._ranges(state):
            fills = plan_fills(self._table.files(state), ranges, settings=self._settings(state))
            some, left = fills[: self._files_per_commit], fills[self._files_per_commit :]
            on_progress(done, done + len(fills))
            filled = self._fill(state, some)
            change = TableChange(
                base=state,
                added=[one.file for one in filled],
                removed=[one.file for one in some],
                properties={
                    **with_backfilled(state.properties, filled_up_to(left, ranges), ranges),
                    BACKFILLED: new_id(),
                },
            )
            try:
                state = self._table.commit(change)
            except Conflict as conflict:
                replans += 1
                if replans > _REPLANS_MAX:
                    raise TableError(
                        f"{self._table.location} was changed by others {_REPLANS_MAX} times in a row; run the "
                        "backfill when fewer write to it"
                    ) from conflict
                logger.info("%s is planned again: %s", self._topic, conflict)
                state = self._state()
                continue
            replans = 0
            done += len(some)
            report.files += len(some)
            report.commits += 1
            report.filled += sum(one.filled for one in filled)
            report.gone += sum(one.gone for one in filled)
            report.unfit += sum(one.unfit for one in filled)
        on_progress(done, done)
        return report

    def _opened(self) -> TableState:
        """Return the table with the named columns to be filled, in all of its rows."""
        state = self._state()
        if kept_decoding(state).is_raw:
            raise ConfigurationError(
                f"{self._table.location} holds records as they are, so no column is ever added to it"
            )
        missing = [name for name in self._columns if name not in state.schema.names or name in ORIGIN]
        if missing:
            raise ConfigurationError(
                f"{self._table.location} has no column {missing[0]} that comes from the topic's values; it has "
                f"{', '.join(name for name in state.schema.names if name not in ORIGIN)}"
            )
        new = [name for name in self._columns if name not in open_backfill(state)]
        for _ in range(_REPLANS_MAX):
            if not new:
                break
            properties = with_open_columns(state.properties, new, state.progress.get(self._topic))
            try:
                return self._table.commit(TableChange(base=state, properties=properties))
            except Conflict:
                state = self._state()
        return state

    def _ranges(self, state: TableState) -> OpenRanges:
        found = open_backfill(state)
        return {name: one for name, one in found.items() if not self._columns or name in self._columns}

    def _state(self) -> TableState:
        state = self._table.state()
        if state is None:
            raise TableError(
                f"There is no {self._options.format} table of {self._topic} at {self._table.location}"
            )
        progress = state.progress.get(self._topic)
        if progress is not None and progress.topic_id != self._client.topic(self._topic).id.hex():
            raise TableError(
                f"{self._topic} is not the topic that the table at {self._table.location} was made from: it was "
                "deleted and made again. Nothing can be filled from it"
            )
        return state

    def _settings(self, state: TableState) -> object:
        return [self._layout(state).digest(), state.properties.get(DECODING_PROPERTY)]

    def _layout(self, state: TableState) -> FileLayout:
        return FileLayout(
            store=open_store(self._table.location, self._options.store),
            schema=state.schema,
            partitioning=state.partitioning,
        )

    def _fill(self, state: TableState, fills: Sequence[PlannedFill]) -> list[FilledFile]:
        decoding = kept_decoding(state)
        if self._registry is not None:
            decoding = replace(decoding, registry=self._registry)
        topic_id, layout = self._client.topic(self._topic).id, self._layout(state)
        row_decoder = row_decoder_of(decoding)
        tasks = [
            FillTask(
                fill=one,
                topic_id=topic_id,
                layout=layout,
                source=self._options.source,
                row_decoder=row_decoder,
            )
            for one in fills
        ]
        return map_in_workers(self._spark, tasks, fill_file, FilledFile, work_bytes=_work_bytes(fills))


def _work_bytes(fills: Sequence[PlannedFill]) -> int:
    """About how much is to be read, of the files and of the topic."""
    return sum(one.file.size + _RECORD_BYTES * (one.file.end_offset - one.file.start_offset) for one in fills)
