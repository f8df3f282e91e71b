"""Topics on their way into tables: plan, write, commit; once or again and again.

    with Sync(spark, options) as sync:
        sync.run()                       what is there now
        sync.follow(interval_s=30)       until it is stopped

    state → plan → workers write files → one commit of files and offsets     Conflict: from the beginning

Invariant: what a commit adds was planned on the very state that it changes. Nothing else is kept between syncs, here
or anywhere: a sync that is killed leaves files that no table names, and the next one begins where the table ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.formats.extra_fields import described
from flintmq.client.admin.groups import committed_offsets, set_offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.lake.fan_out import OnProgress, no_progress
from flintmq.lake.limits import SYNC_LIMITS, SyncLimits
from flintmq.lake.syncing.metrics import SyncMetrics, TableCommit
from flintmq.lake.syncing.options import Evolve, SyncOptions, make_options
from flintmq.lake.syncing.planner import SyncError, SyncPlan, SyncPlanner, SyncRequest, range_of, total_bytes
from flintmq.lake.syncing.range_runner import PASSING, RangeResult, RangeRunner, RangeWork, SyncStopped
from flintmq.lake.syncing.synced_table import PreparedTable, SyncedTable, extra_records, own_location
from flintmq.lake.tables.table import Conflict, TopicProgress
from flintmq.protocol.table_progress import is_progress_of_other, progress_metadata, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)


def sync(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    to: str,
    format: str = "parquet",
    bootstrap_servers: str = "localhost:9092",
    interval_s: float | None = None,
    on_commit: Callable[[TableCommit], None] = lambda commit: None,
    **options: Any,
) -> SyncOutcome:
    """Let tables below `to` have what topics have; with `interval_s`, again and again until KeyboardInterrupt.

    `options` are those of `make_options`, and are named as on the command line: decode, schema, registry, evolve,
    rest, partition_by, quarantine, allow_gaps, group, catalog, store and so on.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    made = make_options(names, to=to, format=format, bootstrap_servers=bootstrap_servers, **options)
    with Sync(spark, made, on_commit=on_commit) as under_way:
        if interval_s is None:
            return under_way.run()
        under_way.follow(interval_s=interval_s)
        return SyncOutcome()


class SyncUnavailable(SyncError):
    """Something that a sync needs is away, or never at rest; another time it may be there."""


@dataclass(slots=True)
class SyncOutcome:
    """What a sync did."""

    commits: list[TableCommit] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.commits)

    @property
    def quarantined(self) -> int:
        return sum(one.quarantined for one in self.commits)


@dataclass(slots=True)
class _Run:
    """How far one sync is."""

    left: list[str]
    """Topics that are not where they should be yet."""
    outcome: SyncOutcome = field(default_factory=SyncOutcome)
    goals: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """The ends when it began, so that it ends however fast others write."""
    failures: dict[str, FlintError] = field(default_factory=dict)
    replans: dict[str, int] = field(default_factory=dict)
    """In a row."""
    replans_max: int = SYNC_LIMITS.replans_max

    def advance(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        self.replans[topic] = 0
        if all(next_offsets.get(partition, end) >= end for partition, end in self.goals[topic].items()):
            self.left.remove(topic)

    def is_reached(self, topic: TopicMetadata, progress: TopicProgress | None) -> bool:
        """Whether somebody else has brought the table where this sync wanted it.

        It goes no further then: where two sync at once, the slower one would lose one race after the other.
        """
        goal = self.goals.get(topic.name)
        if goal is None or progress is None or progress.topic_id != topic.id.hex():
            return False
        return all(progress.next_offsets.get(partition, 0) >= end for partition, end in goal.items())

    def replan(self, topic: str) -> None:
        self.replans[topic] = self.replans.get(topic, 0) + 1
        if self.replans[topic] > self.replans_max:
            raise SyncUnavailable(
                f"{topic}: the table or the topic has changed {self.replans_max} times in a row while it was synced; "
                "see who else writes to the table, then sync again"
            )

    def fail(self, topic: str, error: FlintError) -> None:
        self.failures[topic] = error
        self.left.remove(topic)

    @contextmanager
    def failing(self, topic: str) -> Iterator[None]:
        """What is raised within is the topic's failure, and nobody else's."""
        try:
            yield
        except SyncStopped:
            raise
        except FlintError as error:
            self.fail(topic, error)


def _together(failures: Mapping[str, FlintError]) -> FlintError:
    if len(failures) == 1:
        return next(iter(failures.values()))
    text = "\n".join(f"{topic}: {error}" for topic, error in failures.items())
    may_pass = all(isinstance(error, (SyncUnavailable, *PASSING)) for error in failures.values())
    return SyncUnavailable(text) if may_pass else SyncError(text)


class Sync:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        options: SyncOptions,
        *,
        metrics: SyncMetrics | None = None,
        on_progress: OnProgress = no_progress,
        on_commit: Callable[[TableCommit], None] = lambda commit: None,
        clock: Callable[[], float] = time.monotonic,
        limits: SyncLimits = SYNC_LIMITS,
    ) -> None:
        self.metrics = metrics or SyncMetrics()
        self._options = options
        self._on_progress = on_progress
        self._on_commit = on_commit
        self._clock = clock
        self._limits = limits
        self._stop = threading.Event()
        self._published_s: dict[str, float] = {}
        """When a topic's progress was last published, by the clock."""
        self._client: ClusterClient = client_of(options.source)
        self._planner = SyncPlanner(
            self._client,
            options.source,
            piece_bytes=options.piece_bytes,
            allow_gaps=options.allow_gaps,
            ranges_max=limits.ranges_max,
        )
        self._runner = RangeRunner(spark)
        self._tables: dict[str, SyncedTable] = {}

    def __enter__(self) -> Sync:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.__exit__(kind, error, traceback)
        self._client.close()

    def stop(self) -> None:
        """Of any thread, or of a signal's handler: what runs ends soon, by Stopped if something was under way."""
        self._stop.set()

    def run(self) -> SyncOutcome:
        """Let the tables have all that was committed to the topics when this began.

        A topic that fails does not keep the others; what was wrong with it is raised when they are done.
        """
        run = _Run(left=list(self._options.topics), replans_max=self._limits.replans_max)
        while run.left:
            if self._stop.is_set():
                raise SyncStopped("stopped between two commits")
            self._round(run)
        if run.failures:
            raise _together(run.failures)
        return run.outcome

    def follow(self, *, interval_s: float, on_sync: Callable[[], None] = lambda: None) -> None:
        """Sync again and again, with `interval_s` from one beginning to the next, until it is stopped."""
        failures = 0
        while not self._stop.is_set():
            begun, pause_s = self._clock(), interval_s
            try:
                self.run()
                failures = 0
            except SyncStopped:
                return
            except (SyncUnavailable, *PASSING) as error:
                failures += 1
                if failures >= self._limits.failures_max:
                    raise
                logger.error("this sync failed, and the next will try again: %s", error)
                pause_s = max(interval_s, self._limits.failure_pause_s)
            on_sync()
            self._stop.wait(max(0.0, begun + pause_s - self._clock()))

    # ---- one round: at most one commit for each topic

    def _round(self, run: _Run) -> None:
        begun = self._clock()
        topics = self._planner.topics()
        prepared: dict[str, PreparedTable] = {}
        for name in list(run.left):
            with run.failing(name):
                table = self._table(name).prepare(topics[name])
                if run.is_reached(topics[name], table.progress):
                    run.left.remove(name)
                    self.metrics.set_synced(name, table.location, now_s=time.time())
                else:
                    prepared[name] = table
        planned = self._planner.plan(
            {name: SyncRequest(one.location, one.progress) for name, one in prepared.items()}, topics
        )
        plans: dict[str, SyncPlan] = {}
        for name, plan in planned.items():
            if isinstance(plan, SyncError):
                run.fail(name, plan)
            else:
                plans[name] = plan
                run.goals.setdefault(name, plan.ends)
        work = [RangeWork(piece, at) for at, plan in enumerate(plans.values()) for piece in plan.tasks]
        targets = [prepared[name].target for name in plans]
        results = self._runner.run(
            work,
            targets,
            work_bytes=total_bytes(plans.values()),
            on_progress=self._on_progress,
            is_stopped=self._stop.is_set,
        )
        by_topic: dict[str, list[RangeResult]] = {name: [] for name in plans}
        for one, result in zip(work, results, strict=True):
            by_topic[range_of(one.task).topic].append(result)
        for name, plan in plans.items():
            with run.failing(name):
                if self._commit(prepared[name], plan, by_topic[name], run.outcome, begun):
                    run.advance(name, plan.next_offsets)
                else:
                    run.replan(name)

    def _table(self, name: str) -> SyncedTable:
        """Opened when the topic is known to be there: a catalog takes longer to open than a broker to answer."""
        if name not in self._tables:
            self._tables[name] = SyncedTable(name, self._options, self._client, self._limits)
        return self._tables[name]

    def _commit(
        self,
        table: PreparedTable,
        plan: SyncPlan,
        results: list[RangeResult],
        outcome: SyncOutcome,
        begun: float,
    ) -> bool:
        """Whether it is done, not to be planned again."""
        name = plan.topic.name
        lag = {partition: plan.ends[partition] - plan.next_offsets[partition] for partition in plan.ends}
        if not results and not table.has_news(plan):
            self.metrics.set_synced(name, table.location, now_s=time.time())
            self.metrics.set_lag(name, table.location, lag)
            self._publish_again(name, plan.next_offsets)
            return True
        if not self._all_written(table, results):
            return False
        if self._stop.is_set():
            raise SyncStopped("stopped before the commit; the next sync takes the files that are done")
        try:
            table.commit(plan, [one.written for one in results if one.written is not None])
        except Conflict as conflict:
            self.metrics.add_conflict(name, table.location)
            logger.info("%s is planned again: %s", name, conflict)
            return False
        commit = replace(table.table_commit(plan, results, seconds=self._clock() - begun), lag=lag)
        self.metrics.add(commit)
        if plan.is_complete:
            self.metrics.set_synced(name, table.location, now_s=time.time())
        outcome.commits.append(commit)
        self._publish(name, plan.next_offsets)
        self._on_commit(commit)
        return True

    def _all_written(self, table: PreparedTable, results: list[RangeResult]) -> bool:
        """False if what was found on the way asks for another plan; an error if no plan would help."""
        new_schemas = {one for result in results for one in result.new_schemas}
        if new_schemas:
            if self._options.evolve is Evolve.FAIL:
                raise SyncError(
                    f"{table.topic}: records have schemas with columns that the table does not have (ids "
                    f"{', '.join(map(str, sorted(new_schemas)))}); to add them, sync with --evolve add"
                )
            table.learn(new_schemas)
            return False
        if new_columns := sorted({result.new_columns for result in results if result.new_columns}):
            table.learn_columns(new_columns)
            return False
        failed = [one for one in results if one.error]
        if any(one.is_lost for one in failed):
            # Retention, or somebody who deleted the topic: the next plan tells exactly.
            logger.info("%s is planned again: %s", table.topic, failed[0].error)
            return False
        for one in failed:
            raise SyncUnavailable(one.error) if one.may_pass else SyncError(one.error)
        extra = extra_records(one.written for one in results if one.written is not None)
        if extra and self._options.evolve is Evolve.FAIL:
            raise SyncError(
                f"{table.topic}: fields have no column in {table.location}: {described(extra)}. Name columns for "
                "them with --schema, let them be added with --evolve add, or kept with --rest COLUMN"
            )
        return True

    def _publish(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Let a consumer group say how far the table is. The table is what counts; retention goes by the group."""
        group = self._options.group_of(topic)
        # Not where a rename has put the table: that would look like another table.
        location = own_location(self._options, topic)
        offsets = {(topic, partition): offset for partition, offset in next_offsets.items()}
        try:
            if topic not in self._published_s:
                self._warn_of_other_table(group, topic, location)
            try:
                set_offsets(self._client, group, offsets, metadata=progress_metadata(location))
            except RequestError as error:
                if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                    raise
                # Without it the group still shows the lag, and retention does not know the table.
                logger.warning("group %s: offset.metadata.max.bytes has no room for the table's name", group)
                set_offsets(self._client, group, offsets)
            self._published_s[topic] = self._clock()
        except FlintError as error:
            logger.warning("the progress of %s could not be published as group %s: %s", topic, group, error)

    def _warn_of_other_table(self, group: str, topic: str, location: str) -> None:
        """A group shows one table. Retention no longer waits for the table that it showed before."""
        try:
            committed = committed_offsets(self._client, group)
        except FlintError as error:
            logger.info(
                "the offsets of group %s could not be read before they are replaced: %s", group, error
            )
            return
        for (name, _), one in committed.items():
            if name == topic and is_progress_of_other(one.metadata, location):
                logger.warning(
                    "the group %s showed the progress of the table %s until now: retention no longer waits for that "
                    "table. Sync each table of a topic with a --group of its own",
                    group,
                    table_of(one.metadata),
                )
                return

    def _publish_again(self, topic: str, next_offsets: Mapping[int, int]) -> None:
        """Publish what has not changed, now and then: a group that nobody commits to expires."""
        published_s = self._published_s.get(topic)
        if published_s is None or self._clock() - published_s >= self._limits.publish_again_s:
            self._publish(topic, next_offsets)
