"""One section of an audit, in a worker: the broker's rows beside the table's.

Invariant: every record that the broker shows in the section is either a row of the table, the same in every column
that its file has, or it is told what is wrong. Records that could not be decoded are looked for in the quarantine,
where they are as they were; who is there need not be in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.segment_planner import Task
from flintmq.arrow.scan.task_reader import read_task
from flintmq.errors import CorruptionError, RequestError
from flintmq.lake.audit.comparison import Offsets, UnsortedRows, check_order, compare
from flintmq.lake.audit.planning import CoveredRange, PartitionSection
from flintmq.lake.audit.report import AuditProblem, AuditProblemKind, SectionAudit, merged_audits, offset_runs
from flintmq.lake.audit.table_reader import LakeRows, UnreadableFile
from flintmq.lake.quarantine.table import is_discarded
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.row_decoder import ORIGIN, POISON, RowDecoder
from flintmq.lake.tables.data_file import DataFile

_COMPARED = tuple(name for name in COLUMNS if name not in ("topic", "partition"))
"""The others are the same for a whole partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """Can be pickled."""

    section: PartitionSection
    task: Task | None
    """How the broker's rows are read; None if it has them no more."""
    source: SourceOptions
    store: Store
    row_decoder: RowDecoder
    poison: tuple[DataFile, ...] = ()
    """Files of the quarantine that may hold records of the section."""
    poison_store: Store | None = None
    """None if there is no quarantine table."""
    replayed: frozenset[int] = frozenset()
    """Offsets in these files whose records have become rows of the table."""
    is_compacted: bool = False
    """The broker may have dropped records that a newer one of the same key replaces."""
    open_columns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Columns that rows of these offsets need not have yet."""


def audit_section(task: AuditTask) -> SectionAudit:
    try:
        try:
            return _Audit(task, sort=False).run()
        except UnsortedRows:
            return _Audit(task, sort=True).run()
    except UnreadableFile as why:
        if len(task.section.ranges) > 1:
            # Its neighbours are to be compared all the same.
            return merged_audits(audit_section(one) for one in _one_by_one(task))
        return _unreadable(task, why)
    except DataLoss:
        return SectionAudit(is_outdated=True)


def _one_by_one(task: AuditTask) -> Iterator[AuditTask]:
    for covered in task.section.ranges:
        section = replace(task.section, ranges=(covered,))
        yield replace(task, section=section, task=_part(task.task, covered.start, covered.end))


def _part(task: Task | None, start: int, end: int) -> Task | None:
    """How a part of a task's rows is read."""
    if task is None:
        return None
    if isinstance(task, OffsetRange):
        return task._replace(start=start, end=end)
    segments = tuple(one for one in task.segments if one.base_offset < end and start < one.end_offset)
    return task._replace(wanted=task.wanted._replace(start=start, end=end), segments=segments)


def _unreadable(task: AuditTask, why: UnreadableFile) -> SectionAudit:
    """A file that cannot be read."""
    one = why.file
    checked = SectionAudit(
        rows_by_file={file.path: None for covered in task.section.ranges for file in covered.files}
    )
    checked.add(
        AuditProblem(
            kind=AuditProblemKind.UNREADABLE,
            topic=task.section.source.topic,
            partition=task.section.source.partition,
            start=max(one.start_offset, task.section.start),
            end=min(one.end_offset, task.section.end),
            files=(one.path,),
            detail=why.why,
        )
    )
    return checked


class _Audit:
    def __init__(self, task: AuditTask, *, sort: bool) -> None:
        self._task = task
        self._section = task.section
        self._sort = sort
        self._checked = SectionAudit()
        self._quarantined = np.empty(0, np.int64)
        self._extra = ExtraFields()
        self._discarded = np.empty(0, np.int64)
        self._poison: list[pa.RecordBatch] = []
        """Records of the broker that are quarantined, and not discarded."""

    def run(self) -> SectionAudit:
        if self._sort:
            self._report(
                AuditProblemKind.MISPLACED,
                self._section.start,
                self._section.end,
                detail="rows are not sorted by offset",
            )
        required = ORIGIN if not self._task.row_decoder.is_raw else COLUMNS
        lake = LakeRows(self._task.store, self._section, self, required=required, sort=self._sort)
        try:
            self._compare(lake)
        except (CorruptionError, RequestError) as why:
            detail = f"at the broker: {why}"
            self._report(
                AuditProblemKind.UNREADABLE, self._section.start, self._section.end, files=(), detail=detail
            )
        else:
            self._checked.rows_by_file = dict(lake.rows_by_file)
            return self._checked
        self._checked.rows_by_file = {
            one.path: None for covered in self._section.ranges for one in covered.files
        }
        return self._checked

    def _compare(self, lake: LakeRows) -> None:
        if self._task.task is None:
            self._checked.only_in_lake += check_order(lake.batches(), self)
            return
        if self._task.row_decoder.is_raw:
            compare(read_task(self._task.task, _COMPARED, self._task.source), lake.batches(), self)
            return
        quarantine = list(self._quarantine_rows())
        self._quarantined = np.unique(
            np.concatenate([self._discarded, *(_offsets(one) for one in quarantine)])
        )
        compare(self._decoded(self._task.task), lake.batches(), self)
        self._checked.extra = self._extra.records
        compare(iter(self._poison), iter(quarantine), self)

    # ---- the broker's side

    def _decoded(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Rows as the table should have them; what is quarantined is put aside."""
        row_decoder = self._task.row_decoder
        for batch in read_task(task, row_decoder.columns, self._task.source):
            is_poison = np.isin(_offsets(batch), self._quarantined)
            if is_poison.any():
                is_kept = is_poison & ~np.isin(_offsets(batch), self._discarded)
                self._poison.append(batch.select(_POISON_COLUMNS).filter(pa.array(is_kept)))
                batch = batch.filter(pa.array(~is_poison))
            decoded = row_decoder.decode(batch)
            if decoded.extra is not None:
                self._extra.merge(decoded.extra.records)
            if decoded.poison is not None:
                self._undecodable(decoded.poison)
            yield decoded.rows.drop_columns(["partition"])

    def _undecodable(self, poison: pa.RecordBatch) -> None:
        self._checked.undecodable += poison.num_rows
        if self._task.poison_store is not None:
            self.differ(AuditProblemKind.MISSING, _offsets(poison), "error")

    # ---- the quarantine's

    def _quarantine_rows(self) -> Iterator[pa.RecordBatch]:
        if not self._task.poison or self._task.poison_store is None:
            return
        covered = CoveredRange(start=self._section.start, end=self._section.end, files=self._task.poison)
        section = PartitionSection(source=self._section.source, ranges=(covered,), is_at_broker=True)
        for batch in LakeRows(
            self._task.poison_store, section, self, required=POISON.names, sort=True
        ).batches():
            is_row = np.isin(_offsets(batch), np.fromiter(self._task.replayed, np.int64))
            is_gone = is_discarded(batch) & ~is_row
            # Of a discarded record only its place is known.
            self._discarded = np.concatenate([self._discarded, _offsets(batch)[is_gone]])
            batch = batch.filter(pa.array(~is_row & ~is_gone))
            yield batch.select([name for name in batch.schema.names if name in _POISON_COLUMNS])

    # ---- what is found

    def equal(self, count: int) -> None:
        self._checked.compared += count

    def differ(self, kind: AuditProblemKind, offsets: Offsets, column: str | None = None) -> None:
        if kind is AuditProblemKind.FOREIGN and self._task.is_compacted:
            self._checked.compacted += len(offsets)
            return
        if kind is AuditProblemKind.CHANGED and column is not None and column in self._task.open_columns:
            start, end = self._task.open_columns[column]
            offsets = offsets[(offsets < start) | (offsets >= end)]
        for start, end in offset_runs(offsets.tolist()):
            self._report(kind, start, end, column=column)

    def _report(
        self,
        kind: AuditProblemKind,
        start: int,
        end: int,
        *,
        column: str | None = None,
        files: Sequence[str] | None = None,
        detail: str = "",
    ) -> None:
        if files is None:
            files = sorted(
                {
                    one.path
                    for covered in self._section.ranges
                    if covered.start < end and start < covered.end
                    for one in covered.files
                    if one.start_offset < end and start < one.end_offset
                }
            )
        self._checked.add(
            AuditProblem(
                kind=kind,
                topic=self._section.source.topic,
                partition=self._section.source.partition,
                start=start,
                end=end,
                column=column,
                files=tuple(files),
                detail=detail,
            )
        )


_POISON_COLUMNS = [name for name in POISON.names if name not in ("topic", "partition", "error")]


def _offsets(batch: pa.RecordBatch) -> Offsets:
    column: Offsets = batch.column("offset").to_numpy()
    return column
