"""`lake audit`: do the broker and a table agree, row for row, in one pass over both?

    for one in audit(spark, options):
        one.is_good, one.problems

Every record of the topic up to the table's progress is compared with its row, by Spark's workers; what retention has
taken from the broker is checked within the table only, and said. Invariant: nothing is changed by looking, and a
table that is synced, merged or cleaned meanwhile is not taken for a bad one: the audit is of one state of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.segment_planner import SegmentFinder, Task, with_files
from flintmq.client.admin.topics import EARLIEST, LATEST, describe_topic_settings, offsets
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import FlintError
from flintmq.lake.audit.planning import (
    SECTION_BYTES,
    OffsetBounds,
    PartitionSection,
    SourcePartition,
    plan_sections,
)
from flintmq.lake.audit.report import (
    PROBLEMS_MAX,
    AuditProblem,
    AuditProblemKind,
    SectionAudit,
    TableAudit,
    merged_audits,
)
from flintmq.lake.audit.task import AuditTask, audit_section
from flintmq.lake.fan_out import OnProgress, map_in_workers, no_progress
from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.quarantine.table import COMPLETED
from flintmq.lake.store.store import Store, open_store
from flintmq.lake.syncing.column_notes import open_backfill
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX, SyncOptions
from flintmq.lake.syncing.quarantine import PendingQuarantine
from flintmq.lake.syncing.row_decoder import RowDecoder
from flintmq.lake.syncing.synced_table import table_of
from flintmq.lake.syncing.table_decoding import kept_decoding, row_decoder_of
from flintmq.lake.tables.data_file import DataFile, FileName
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.properties import REBUILT
from flintmq.lake.tables.table import Table, TableError, TableState, TopicProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)

_ROUNDS_MAX: Final = 5
"""Retention goes on during an audit: what it took in one round is looked at again in the next."""


def audit(
    spark: SparkSession | LazySession,
    options: SyncOptions,
    *,
    registry: str | None = None,
    on_progress: OnProgress = no_progress,
    section_bytes: int = SECTION_BYTES,
) -> list[TableAudit]:
    """Of the tables of these topics. `registry` is the schema registry's address, if that has changed, or a password.

    `on_progress` is called with the number of finished tasks and of all tasks.
    """
    with client_of(options.source) as client:
        return [
            _Audit(spark, client, options, topic, registry, section_bytes).run(on_progress)
            for topic in options.topics
        ]


@dataclass(frozen=True, slots=True)
class _Quarantine:
    store: Store
    files: tuple[DataFile, ...]
    replayed: ReplayMark | None
    """Records that are still in the files, and are rows of the table."""


class _Outdated(FlintError):
    """The quarantine has lost records that the table in the audited state does not have yet."""


class _Audit:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        client: ClusterClient,
        options: SyncOptions,
        topic: str,
        registry: str | None,
        section_bytes: int,
    ) -> None:
        self._spark = spark
        self._client = client
        self._options = options
        self._topic = topic
        self._registry = registry
        self._section_bytes = section_bytes
        self._source = options.source

    def run(self, on_progress: OnProgress) -> TableAudit:
        for _ in range(_ROUNDS_MAX):
            try:
                found, table = self._look(on_progress)
            except _Outdated:
                logger.info(
                    "%s: quarantined records were replayed meanwhile; it is looked at again", self._topic
                )
                continue
            unreadable = {
                path
                for one in found.problems
                if one.kind is AuditProblemKind.UNREADABLE
                for path in one.files
            }
            state = table.state() if unreadable else None
            if state is None or unreadable & {one.path for one in table.files(state)}:
                return found
            logger.info("%s: files were merged and removed meanwhile; it is looked at again", table.location)
        raise TableError(
            f"The table of {self._topic} changes faster than it is compared; audit it when it rests."
        )

    def _look(self, on_progress: OnProgress) -> tuple[TableAudit, Table]:
        table = table_of(self._options, self._topic)
        state = table.state()
        if state is None:
            raise missing_table(table, open_store(table.location, self._options.store))
        progress = state.progress.get(self._topic)
        files = list(table.files(state))
        view = self._view(table, progress)
        problems = list(_foreign(files, self._topic, progress))
        foreign = {path for one in problems for path in one.files}
        by_partition: dict[int, list[DataFile]] = {index: [] for index in _partitions(progress)}
        for one in files:
            if one.path not in foreign:
                by_partition.setdefault(one.partition, []).append(one)
        checked = self._rounds(table, state, view, by_partition, problems, on_progress)
        problems += _counted(files, checked, self._topic)
        count = len(problems) + sum(one.problem_count for one in checked)
        told = [*problems, *(problem for one in checked for problem in one.problems)]
        told.sort(key=lambda one: (one.partition, one.start))
        audited = TableAudit(
            topic=self._topic,
            table=table.location,
            files=len(files),
            compared=sum(one.compared for one in checked),
            only_in_lake=sum(one.only_in_lake for one in checked),
            compacted=sum(one.compacted for one in checked),
            undecodable=sum(one.undecodable for one in checked),
            not_yet=self._not_yet(view, progress),
            extra=merged_audits(checked).extra,
            open_columns=tuple(open_backfill(state)),
            problem_count=count,
            problems=tuple(told[:PROBLEMS_MAX]),
        )
        return audited, table

    def _view(self, table: Table, progress: TopicProgress | None) -> TopicMetadata:
        try:
            view = self._client.topic(self._topic)
        except NoSuchTopic:
            raise NoSuchTopic(self._topic, self._client.nearest_topic(self._topic)) from None
        if progress is not None and progress.topic_id != view.id.hex():
            raise TableError(
                f"{self._topic} is not the topic that the table at {table.location} was made from: it was deleted "
                "and made again. There is nothing to compare the table with."
            )
        return view

    def _rounds(
        self,
        table: Table,
        state: TableState,
        view: TopicMetadata,
        by_partition: Mapping[int, Sequence[DataFile]],
        problems: list[AuditProblem],
        on_progress: OnProgress,
    ) -> list[SectionAudit]:
        row_decoder = self._row_decoder(state)
        quarantine = self._quarantine(table, state) if not row_decoder.is_raw else None
        ends = _partitions(state.progress.get(self._topic))
        sections, found = self._planned(view, by_partition, ends)
        problems += found
        common = (
            AuditTask(
                section=sections[0],
                task=None,
                source=self._source,
                store=open_store(table.location, self._options.store),
                row_decoder=row_decoder,
                poison_store=None if quarantine is None else quarantine.store,
                is_compacted=self._is_compacted(),
            )
            if sections
            else None
        )
        done: list[SectionAudit] = []
        for _ in range(_ROUNDS_MAX):
            if common is None or not sections:
                return done
            tasks = [
                replace(
                    common,
                    section=one,
                    task=task,
                    poison=_within(quarantine, one),
                    open_columns=_open_columns(state, one.source.partition),
                    replayed=_replayed(quarantine, one),
                )
                for one, task in zip(sections, self._tasks(sections), strict=True)
            ]
            results = map_in_workers(
                self._spark,
                tasks,
                audit_section,
                SectionAudit,
                work_bytes=sum(one.work_bytes for one in sections),
                on_progress=on_progress,
            )
            done += [one for one in results if not one.is_outdated]
            outdated = [one for one, result in zip(sections, results, strict=True) if result.is_outdated]
            if outdated:
                logger.info(
                    "%s: retention went on; %d sections are looked at again", self._topic, len(outdated)
                )
            sections = self._replanned(view, outdated)
        raise TableError(
            f"Retention takes records of {self._topic} faster than they are compared; audit it when it rests."
        )

    def _planned(
        self, view: TopicMetadata, by_partition: Mapping[int, Sequence[DataFile]], ends: Mapping[int, int]
    ) -> tuple[list[PartitionSection], list[AuditProblem]]:
        earliest = offsets(self._client, [(self._topic, index) for index in sorted(by_partition)], EARLIEST)
        sections: list[PartitionSection] = []
        problems: list[AuditProblem] = []
        for index in sorted(by_partition):
            end = ends.get(index, 0)
            span = OffsetBounds(earliest=min(earliest[self._topic, index], end), end=end)
            some, found = plan_sections(
                by_partition[index],
                self._source_partition(view, index),
                span,
                section_bytes=self._section_bytes,
            )
            sections += some
            problems += found
        return sections, problems

    def _replanned(self, view: TopicMetadata, outdated: Sequence[PartitionSection]) -> list[PartitionSection]:
        """The same sections, cut where the broker begins now."""
        if not outdated:
            return []
        partitions = sorted({one.source.partition for one in outdated})
        earliest = offsets(self._client, [(self._topic, index) for index in partitions], EARLIEST)
        again: list[PartitionSection] = []
        for one in outdated:
            again += one.cut(earliest[self._topic, one.source.partition])
        return again

    def _tasks(self, sections: Sequence[PartitionSection]) -> list[Task | None]:
        ranges = [
            OffsetRange(one.source.topic, one.source.topic_id, one.source.partition, one.start, one.end)
            if one.is_at_broker
            else None
            for one in sections
        ]
        whole = _whole([one for one in ranges if one is not None])
        segments = SegmentFinder(self._client, self._source).find(whole)
        return [
            None if one is None else with_files(one, segments.get((one.topic, one.partition)))
            for one in ranges
        ]

    def _source_partition(self, view: TopicMetadata, partition: int) -> SourcePartition:
        return SourcePartition(topic=self._topic, topic_id=view.id, partition=partition)

    def _row_decoder(self, state: TableState) -> RowDecoder:
        decoding = kept_decoding(state)
        return row_decoder_of(
            decoding if self._registry is None else replace(decoding, registry=self._registry)
        )

    def _quarantine(self, audited: Table, state: TableState) -> _Quarantine | None:
        table = table_of(self._options, self._topic + QUARANTINE_SUFFIX)
        found = table.state()
        if found is None:
            return None
        files = list(table.files(found))
        pending = PendingQuarantine.of(state, self._topic)
        if pending is not None and not pending.is_in(found.progress.get(self._topic)):
            # Somebody died between the two commits; the next sync makes up for it.
            files += pending.files
        if found.properties.get(REBUILT) != (rebuilt := state.properties.get(REBUILT)):
            if (now := audited.state()) is None or now.properties.get(REBUILT) != rebuilt:
                raise _Outdated
            # The table was rebuilt, and its quarantine is not complete yet.
            files = [] if pending is None else list(pending.files)
            return _Quarantine(open_store(table.location, self._options.store), tuple(files), None)
        mark = ReplayMark.of(state)
        if found.properties.get(COMPLETED) == (None if mark is None else mark.id):
            mark = None
        elif (now := audited.state()) is None or ReplayMark.of(now) != mark:
            raise _Outdated
        return _Quarantine(open_store(table.location, self._options.store), tuple(files), mark)

    def _is_compacted(self) -> bool:
        settings = describe_topic_settings(self._client, self._topic)
        policy = next((one.value for one in settings if one.name == "cleanup.policy"), None)
        return "compact" in (policy or "")

    def _not_yet(self, view: TopicMetadata, progress: TopicProgress | None) -> int:
        partitions = [(self._topic, index) for index in sorted(view.partitions)]
        starts = offsets(self._client, partitions, EARLIEST)
        ends = offsets(self._client, partitions, LATEST, read_committed=True)
        reached = _partitions(progress)
        return sum(
            max(0, ends[partition] - max(starts[partition], reached.get(partition[1], 0)))
            for partition in partitions
        )


def _partitions(progress: TopicProgress | None) -> Mapping[int, int]:
    return {} if progress is None else progress.next_offsets


def _foreign(files: Iterable[DataFile], topic: str, progress: TopicProgress | None) -> Iterable[AuditProblem]:
    for one in files:
        name = FileName.of(one.path)
        if progress is None or name is None or name.topic_id != progress.topic_id:
            yield AuditProblem(
                kind=AuditProblemKind.FOREIGN,
                topic=topic,
                partition=one.partition,
                start=one.start_offset,
                end=one.end_offset,
                files=(one.path,),
                detail="the file is not one that a sync of this topic made",
            )


def _open_columns(state: TableState, partition: int) -> dict[str, tuple[int, int]]:
    return {name: found[partition] for name, found in open_backfill(state).items() if partition in found}


def _within(quarantine: _Quarantine | None, section: PartitionSection) -> tuple[DataFile, ...]:
    if quarantine is None:
        return ()
    return tuple(
        one
        for one in quarantine.files
        if one.partition == section.source.partition
        and one.start_offset < section.end
        and section.start < one.end_offset
    )


def _replayed(quarantine: _Quarantine | None, section: PartitionSection) -> frozenset[int]:
    if quarantine is None or quarantine.replayed is None:
        return frozenset()
    return frozenset(quarantine.replayed.offsets_of(section.source.partition))


def _whole(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """One range for each partition, around all of its own: the broker is asked once for each."""
    found: dict[int, OffsetRange] = {}
    for one in ranges:
        known = found.get(one.partition, one)
        found[one.partition] = known._replace(start=min(known.start, one.start), end=max(known.end, one.end))
    return list(found.values())


def _counted(
    files: Sequence[DataFile], checked: Sequence[SectionAudit], topic: str
) -> Iterable[AuditProblem]:
    """A row outside of its file's offsets is in no section; but the file has one row fewer than it should."""
    seen: dict[str, int] = {}
    unknown: set[str] = set()
    for one in checked:
        for path, rows in one.rows_by_file.items():
            if rows is None:
                unknown.add(path)
            else:
                seen[path] = seen.get(path, 0) + rows
    bad = unknown | {path for one in checked for problem in one.problems for path in problem.files}
    for file in files:
        count = seen.get(file.path)
        # Whatever is wrong with rows of a file is told with them.
        if count is not None and count != file.rows and file.path not in bad:
            yield AuditProblem(
                kind=AuditProblemKind.MISPLACED,
                topic=topic,
                partition=file.partition,
                start=file.start_offset,
                end=file.end_offset,
                files=(file.path,),
                detail=f"the table counts {file.rows} rows in the file, and {count} are in its offsets",
            )
