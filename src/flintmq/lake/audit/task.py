"""One stretch of an audit, in a worker: the broker's rows beside the table's.

Invariant: every record that the broker shows in the stretch is either a row of the table, the same in every column
that its file has, or it is told what is wrong. Records that could not be decoded are looked for in the quarantine,
where they are as they were; who is there need not be in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.segment_planner import Task
from flintmq.arrow.scan.task_reader import read_task
from flintmq.errors import CorruptionError, RequestError
from flintmq.lake.audit.comparison import Offsets, Unsorted, check_order, compare
from flintmq.lake.audit.planning import AuditRange, OffsetCell
from flintmq.lake.audit.report import AuditProblem, AuditProblemKind, Checked, runs, together
from flintmq.lake.audit.table_reader import LakeRows, Unreadable
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.row_decoder import ORIGIN, POISON, Shaper
from flintmq.lake.tables.data_file import DataFile

_COMPARED = tuple(name for name in COLUMNS if name not in ("topic", "partition"))
"""The others are the same for a whole partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """Can be pickled."""

    stretch: AuditRange
    task: Task | None
    """How the broker's rows are read; None if it has them no more."""
    source: SourceOptions
    store: Store
    shaper: Shaper
    poison: tuple[DataFile, ...] = ()
    """Files of the quarantine that may hold records of the stretch."""
    poison_store: Store | None = None
    """None if there is no quarantine table."""
    is_compacted: bool = False
    """The broker may have dropped records that a newer one of the same key replaces."""


def audit_stretch(task: AuditTask) -> Checked:
    try:
        try:
            return _Audit(task, sort=False).run()
        except Unsorted:
            return _Audit(task, sort=True).run()
    except Unreadable as why:
        if len(task.stretch.cells) > 1:
            # Its neighbours are to be compared all the same.
            return together(audit_stretch(one) for one in _one_by_one(task))
        return _told(task, why)
    except DataLoss:
        return Checked(is_outdated=True)


def _one_by_one(task: AuditTask) -> Iterator[AuditTask]:
    for cell in task.stretch.cells:
        stretch = replace(task.stretch, cells=(cell,))
        yield replace(task, stretch=stretch, task=_part(task.task, cell.start, cell.end))


def _part(task: Task | None, start: int, end: int) -> Task | None:
    """How a part of a task's rows is read."""
    if task is None:
        return None
    if isinstance(task, OffsetRange):
        return task._replace(start=start, end=end)
    segments = tuple(one for one in task.segments if one.base_offset < end and start < one.end_offset)
    return task._replace(wanted=task.wanted._replace(start=start, end=end), segments=segments)


def _told(task: AuditTask, why: Unreadable) -> Checked:
    """A file that cannot be read."""
    one = why.file
    checked = Checked(rows_by_file={file.path: None for cell in task.stretch.cells for file in cell.files})
    checked.add(
        AuditProblem(
            kind=AuditProblemKind.UNREADABLE,
            topic=task.stretch.place.topic,
            partition=task.stretch.place.partition,
            start=max(one.start_offset, task.stretch.start),
            end=min(one.end_offset, task.stretch.end),
            files=(one.path,),
            detail=why.why,
        )
    )
    return checked


class _Audit:
    def __init__(self, task: AuditTask, *, sort: bool) -> None:
        self._task = task
        self._stretch = task.stretch
        self._sort = sort
        self._checked = Checked()
        self._quarantined = np.empty(0, np.int64)
        self._poison: list[pa.RecordBatch] = []
        """Records of the broker that are quarantined."""

    def run(self) -> Checked:
        if self._sort:
            self._tell(
                AuditProblemKind.MISPLACED,
                self._stretch.start,
                self._stretch.end,
                detail="rows are not sorted by offset",
            )
        required = ORIGIN if not self._task.shaper.is_raw else COLUMNS
        lake = LakeRows(self._task.store, self._stretch, self, required=required, sort=self._sort)
        try:
            self._compare(lake)
        except (CorruptionError, RequestError) as why:
            detail = f"at the broker: {why}"
            self._tell(
                AuditProblemKind.UNREADABLE, self._stretch.start, self._stretch.end, files=(), detail=detail
            )
        else:
            self._checked.rows_by_file = dict(lake.rows_by_file)
            return self._checked
        self._checked.rows_by_file = {one.path: None for cell in self._stretch.cells for one in cell.files}
        return self._checked

    def _compare(self, lake: LakeRows) -> None:
        if self._task.task is None:
            self._checked.only_in_lake += check_order(lake.batches(), self)
            return
        if self._task.shaper.is_raw:
            compare(read_task(self._task.task, _COMPARED, self._task.source), lake.batches(), self)
            return
        quarantine = list(self._quarantine_rows())
        self._quarantined = np.unique(
            np.concatenate([np.empty(0, np.int64), *(_offsets(one) for one in quarantine)])
        )
        compare(self._shaped(self._task.task), lake.batches(), self)
        compare(iter(self._poison), iter(quarantine), self)

    # ---- the broker's side

    def _shaped(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Rows as the table should have them; what is quarantined is put aside."""
        shaper = self._task.shaper
        for batch in read_task(task, shaper.columns, self._task.source):
            is_poison = np.isin(_offsets(batch), self._quarantined)
            if is_poison.any():
                self._poison.append(batch.select(_POISON_COLUMNS).filter(pa.array(is_poison)))
                batch = batch.filter(pa.array(~is_poison))
            shaped = shaper.shape(batch)
            if shaped.poison is not None:
                self._undecodable(shaped.poison)
            yield shaped.rows.drop_columns(["partition"])

    def _undecodable(self, poison: pa.RecordBatch) -> None:
        self._checked.undecodable += poison.num_rows
        if self._task.poison_store is not None:
            self.differ(AuditProblemKind.MISSING, _offsets(poison), "error")

    # ---- the quarantine's

    def _quarantine_rows(self) -> Iterator[pa.RecordBatch]:
        if not self._task.poison or self._task.poison_store is None:
            return
        cell = OffsetCell(start=self._stretch.start, end=self._stretch.end, files=self._task.poison)
        stretch = AuditRange(place=self._stretch.place, cells=(cell,), is_at_broker=True)
        for batch in LakeRows(
            self._task.poison_store, stretch, self, required=POISON.names, sort=True
        ).batches():
            yield batch.select([name for name in batch.schema.names if name in _POISON_COLUMNS])

    # ---- what is found

    def equal(self, count: int) -> None:
        self._checked.compared += count

    def differ(self, kind: AuditProblemKind, offsets: Offsets, column: str | None = None) -> None:
        if kind is AuditProblemKind.FOREIGN and self._task.is_compacted:
            self._checked.compacted += len(offsets)
            return
        for start, end in runs(offsets.tolist()):
            self._tell(kind, start, end, column=column)

    def _tell(
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
                    for cell in self._stretch.cells
                    if cell.start < end and start < cell.end
                    for one in cell.files
                    if one.start_offset < end and start < one.end_offset
                }
            )
        self._checked.add(
            AuditProblem(
                kind=kind,
                topic=self._stretch.place.topic,
                partition=self._stretch.place.partition,
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
