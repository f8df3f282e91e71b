"""`lake rebuild`: all rows of a table made anew from its topic, beside the old ones, then swapped in one commit.

    rebuild(spark, options)

    mark the table → write all files beside the old ones → one commit: old files out, new ones in → the quarantine

Invariant: until the commit everybody has the old table, and from then on the new one. The mark keeps the new files
from `lake clean`, and names them: a rebuild that was killed goes on with the files that it wrote. A sync may go on
meanwhile: what it adds is written too before the commit. Rows that the topic no longer holds are lost, so they are
counted first, and nothing is changed unless that is allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from flintmq.arrow.cluster_client import client_of
from flintmq.client.admin.topics import describe_topic_settings
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.lake.compact.derived_file import open_parquet
from flintmq.lake.fan_out import OnProgress, no_progress
from flintmq.lake.limits import SYNC_LIMITS, SyncLimits
from flintmq.lake.quarantine.mark import REPLAYED
from flintmq.lake.store.store import Store, StoreError, open_store
from flintmq.lake.syncing.column_notes import BACKFILL, EXTRA_FIELDS, with_extra_fields
from flintmq.lake.syncing.options import JSON, QUARANTINE_SUFFIX, Decoding, SyncOptions
from flintmq.lake.syncing.planner import SyncError, SyncGap, SyncPlanner, SyncRequest, range_of, total_bytes
from flintmq.lake.syncing.quarantine import PENDING, PendingQuarantine, Quarantine, with_pending
from flintmq.lake.syncing.range_runner import RangeResult, RangeRunner, RangeWork
from flintmq.lake.syncing.range_writer import FileLayout, RangeTarget, WrittenRange
from flintmq.lake.syncing.synced_table import extra_records, quarantine_of, table_of
from flintmq.lake.syncing.table_decoding import DECODING_PROPERTY, TableDecoding, kept_decoding
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.partitioning import check_partitioning
from flintmq.lake.tables.properties import REBUILDING, REBUILT
from flintmq.lake.tables.table import Conflict, TableChange, TableError, TableState, TopicProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    table: str
    rows: int
    files: int
    quarantined: int
    lost: int
    """Rows and quarantined records that the topic no longer held."""


def rebuild(
    spark: SparkSession | LazySession,
    options: SyncOptions,
    *,
    decoding: Decoding | None = None,
    on_progress: OnProgress = no_progress,
    limits: SyncLimits = SYNC_LIMITS,
) -> RebuildReport:
    """Rebuild the table of `options`' topic, decoded as before if `decoding` is None.

    Without `options.allow_gaps`, SyncGap if rows would be lost.
    """
    with client_of(options.source) as client:
        return _Rebuild(spark, options, decoding, client, on_progress, limits).run()


class _Restart(Exception):
    """What was found on the way asks for another schema."""


class _Rebuild:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        options: SyncOptions,
        decoding: Decoding | None,
        client: ClusterClient,
        on_progress: OnProgress,
        limits: SyncLimits,
    ) -> None:
        (self._topic,) = options.topics
        self._spark = spark
        self._client = client
        self._on_progress = on_progress
        self._limits = limits
        self._table = table_of(options, self._topic)
        self._poison_table = table_of(options, self._topic + QUARANTINE_SUFFIX)
        kept = kept_decoding(self._state())
        self._options = replace(options, decoding=_chosen(kept, decoding), is_decoding_kept=False)
        self._decoding = TableDecoding(
            self._topic, self._options, client, sample_offsets_max=limits.sample_offsets_max
        )
        self._planner = SyncPlanner(
            client, self._options.source, piece_bytes=options.piece_bytes, ranges_max=limits.ranges_max
        )
        self._quarantine: Quarantine | None = None
        if not self._options.decoding.is_raw:
            self._quarantine = quarantine_of(self._options, self._topic, client)
            if options.quarantine_topic is not None and self._poison_table.state() is not None:
                raise TableError(
                    f"{self._table.location} has its quarantine in the table {self._poison_table.location}; leave "
                    "--quarantine out"
                )

    def run(self) -> RebuildReport:
        topic = self._planner.topics()[self._topic]
        self._check_policy()
        starts = self._planner.starts({self._topic: topic})
        self._check_lost(topic, {partition: offset for (_, partition), offset in starts.items()})
        check_partitioning(self._state().partitioning, self._decoding.first(topic).schema)
        rebuilding = self._mark()
        done: _Written | None = None
        with RangeRunner(self._spark) as runner:
            for _ in range(self._limits.replans_max):
                target = self._target(topic, self._state(), rebuilding)
                if done is not None and done.target.digest != target.digest:
                    done = None
                try:
                    done = self._written(runner, topic, done or _Written(target))
                except _Restart:
                    done = None
                    continue
                if (report := self._swap(topic, done, rebuilding)) is not None:
                    return report
        raise TableError(
            f"{self._table.location}: the table or the topic has changed {self._limits.replans_max} times in a row "
            "while it was rebuilt; stop who else writes to the table, then rebuild it again"
        )

    # ---- before anything is written

    def _state(self) -> TableState:
        state = self._table.state()
        if state is None:
            raise TableError(
                f"There is no table of {self._topic} at {self._table.location}; make it with flintmq lake sync."
            )
        return state

    def _check_policy(self) -> None:
        settings = describe_topic_settings(self._client, self._topic)
        policy = next((one.value for one in settings if one.name == "cleanup.policy"), None)
        if "compact" in (policy or "") and not self._options.allow_gaps:
            raise SyncGap(
                f"{self._topic} is compacted: it no longer holds records that newer ones have replaced, and a "
                "rebuilt table would not have them. To rebuild it all the same use --allow-gaps"
            )

    def _check_lost(self, topic: TopicMetadata, starts: Mapping[int, int]) -> int:
        """Count rows and quarantined records from before the offsets that a new table starts at."""
        lost = 0
        for table in (self._table, self._poison_table):
            state = table.state()
            if state is None:
                continue
            progress = state.progress.get(self._topic)
            is_other = progress is not None and progress.topic_id != topic.id.hex()
            store = open_store(table.location, self._options.store)
            for one in table.files(state):
                until = one.end_offset if is_other else starts.get(one.partition, one.end_offset)
                lost += rows_before(store, one, until)
        if lost and not self._options.allow_gaps:
            raise SyncGap(
                f"{self._topic} no longer holds {lost} records that the table {self._table.location} or its "
                "quarantine has; a rebuilt table would not have them. To rebuild it all the same use --allow-gaps"
            )
        return lost

    def _mark(self) -> str:
        """Say in the table and in its quarantine that a rebuild is under way, or was; return its id."""
        marked = ""
        for table in (self._table, self._poison_table):
            for _ in range(self._limits.replans_max):
                state = table.state()
                if state is None:
                    break
                found = state.properties.get(REBUILDING)
                # The table's own id counts: the quarantine may still have one of a rebuild that was given up.
                marked = marked or found or new_id()
                if found == marked:
                    break
                try:
                    table.commit(TableChange(base=state, properties={**state.properties, REBUILDING: marked}))
                except Conflict:
                    continue
                break
            else:
                raise TableError(f"{table.location} is changed by others all the time; stop its syncs first.")
        return marked

    # ---- the new files

    def _target(self, topic: TopicMetadata, state: TableState, rebuilding: str) -> RangeTarget:
        row_decoder = self._decoding.first(topic)
        schema = self._table.replaced(state, row_decoder.schema)
        layout = FileLayout(
            store=open_store(self._table.location, self._options.store),
            schema=schema,
            partitioning=state.partitioning,
        )
        return RangeTarget(
            source=self._options.source,
            row_decoder=row_decoder,
            rows=layout,
            # With its id: files of the old table would be taken for new ones else, even damaged ones.
            digest=layout.digest(self._decoding.text, rebuilding),
            poison=None if self._quarantine is None else self._quarantine.layout(),
            open_files_max=self._limits.open_files_max,
            table_partitions_max=self._limits.table_partitions_max,
        )

    def _written(self, runner: RangeRunner, topic: TopicMetadata, done: _Written) -> _Written:
        """Write what the topic holds now and is not done yet."""
        while True:
            progress = None if done.reached is None else TopicProgress(topic.id.hex(), done.reached)
            plan = self._planner.plan(
                {self._topic: SyncRequest(self._table.location, progress)}, {self._topic: topic}
            )[self._topic]
            if isinstance(plan, SyncError):
                raise plan
            starts = dict(plan.next_offsets)
            for task in plan.tasks:
                one = range_of(task)
                starts[one.partition] = min(one.start, starts[one.partition])
            written: list[WrittenRange] = []
            if plan.tasks:
                work = [RangeWork(task, 0) for task in plan.tasks]
                results = runner.run(
                    work, [done.target], work_bytes=total_bytes([plan]), on_progress=self._on_progress
                )
                self._check(results)
                written = [one.written for one in results if one.written is not None]
            done = replace(
                done,
                starts={**starts, **done.starts},
                reached=dict(plan.next_offsets),
                written=(*done.written, *written),
            )
            if plan.is_complete:
                return done

    def _check(self, results: Sequence[RangeResult]) -> None:
        if new := {one for result in results for one in result.new_schemas}:
            self._decoding.learn(new)
            raise _Restart
        for one in results:
            if one.is_lost:
                # Retention went on: the next attempt begins where the topic does.
                raise _Restart
            if one.error:
                raise SyncError(one.error)

    # ---- the swap

    def _swap(self, topic: TopicMetadata, done: _Written, rebuilding: str) -> RebuildReport | None:
        """Return None if the table has come further than the new files, or has changed otherwise."""
        state = self._state()
        if state.properties.get(REBUILDING) != rebuilding:
            # Nothing keeps the new files from being cleaned any more.
            raise TableError(
                f"{self._table.location} was rebuilt by somebody else meanwhile; look at it, then rebuild it again "
                "if it is not what you want"
            )
        if self._target(topic, state, rebuilding).digest != done.target.digest:
            return None
        progress = TopicProgress(topic.id.hex(), done.reached or {})
        known = state.progress.get(self._topic)
        if known is not None and known.topic_id == progress.topic_id:
            reached = progress.next_offsets
            if any(offset > reached.get(index, 0) for index, offset in known.next_offsets.items()):
                return None
        lost = self._check_lost(topic, done.starts)
        poison = tuple(file for one in done.written for file in one.poison)
        added = [file for one in done.written for file in one.rows]
        gone = (REBUILDING, REPLAYED, PENDING, BACKFILL, EXTRA_FIELDS)
        properties = {name: value for name, value in state.properties.items() if name not in gone}
        # Another id: the same mark may have served a rebuild that was killed, with other records in quarantine.
        properties |= {DECODING_PROPERTY: self._decoding.text, REBUILT: new_id()}
        properties = with_extra_fields(properties, extra_records(done.written), ())
        pending = PendingQuarantine(self._topic, progress, poison) if poison else None
        try:
            after = self._table.commit(
                TableChange(
                    base=state,
                    added=added,
                    removed=list(self._table.files(state)),
                    schema=done.target.rows.schema,
                    replaces_schema=True,
                    progress={self._topic: progress},
                    properties=with_pending(properties, pending),
                )
            )
        except Conflict as conflict:
            logger.info("%s is looked at again: %s", self._table.location, conflict)
            return None
        if self._quarantine is not None:
            self._quarantine.complete_rebuild(after, self._topic)
            if pending is not None:
                self._quarantine.complete(pending)
        return RebuildReport(
            table=self._table.location,
            rows=sum(one.rows for one in added),
            files=len(added),
            quarantined=sum(one.rows for one in poison),
            lost=lost,
        )


def _chosen(kept: Decoding, asked: Decoding | None) -> Decoding:
    """Return how values are decoded: fields without a column stay where the table keeps them."""
    if asked is None:
        return kept
    can_keep = asked.kind == JSON and asked.registry is None
    return replace(asked, rest=kept.rest) if can_keep and asked.rest is None else asked


@dataclass(frozen=True, slots=True)
class _Written:
    """The new files so far."""

    target: RangeTarget
    starts: Mapping[int, int] = field(default_factory=dict)
    """By partition, the first offset."""
    reached: Mapping[int, int] | None = None
    """By partition, behind the last offset."""
    written: tuple[WrittenRange, ...] = ()


def rows_before(store: Store, one: DataFile, offset: int) -> int:
    """Count the rows of a file before an offset; all of them if the file cannot be read."""
    if offset <= one.start_offset:
        return 0
    if offset >= one.end_offset:
        return one.rows
    try:
        with open_parquet(store, one) as file:
            count = 0
            for batch in file.iter_batches(columns=["offset"]):
                count += int(pc.sum(pc.less(batch.column(0), offset)).as_py() or 0)
            return count
    except (pa.ArrowException, OSError, StoreError, TableError):
        return one.rows
