"""`lake compact`: many small files of a table become few large ones.

    compact(spark, table, store, target_bytes=…)

Invariant: rows do not change, and each is in the table once at every moment: merged files take the place of theirs in
one commit. A sync may go on meanwhile. Who was killed half way leaves files that the next one takes, or `lake clean`
removes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.lake.compact.merge import MergeTask, merge_files
from flintmq.lake.compact.planning import PlannedMerge, plan_merges
from flintmq.lake.fan_out import OnProgress, map_in_workers, no_progress
from flintmq.lake.latest.merge import KIND, LATEST
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.range_writer import FileLayout, ParquetSettings
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.table import Conflict, Table, TableChange, TableError, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)

TARGET_BYTES: Final = 256 * 1024 * 1024
FILES_MIN: Final = 2

_COMMITS_MAX: Final = 20
"""Attempts at one commit, each after somebody else's."""
_INPUTS_MAX: Final = 100_000
"""Files merged between two commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    files_before: int
    """That were merged."""
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    commits: int


def compact(
    spark: SparkSession | LazySession,
    table: Table,
    store: Store,
    *,
    target_bytes: int = TARGET_BYTES,
    files_min: int = FILES_MIN,
    parquet: ParquetSettings | None = None,
    on_progress: OnProgress = no_progress,
) -> CompactReport:
    """`on_progress` is called with the number of merged files and of all files."""
    if target_bytes <= 0 or files_min < 2:
        raise TableError("Files are merged up to a size above 0, two or more of them.")
    state = table.state()
    if state is None:
        raise missing_table(table, store, advice="nothing is merged")
    if state.properties.get(KIND) == LATEST:
        raise TableError(
            f"{table.location} is kept in large files by lake latest itself; there is nothing to merge."
        )
    layout = FileLayout(
        store=store,
        schema=state.schema,
        partitioning=state.partitioning,
        parquet=parquet or ParquetSettings(),
    )
    merges = plan_merges(
        table.files(state), target_bytes=target_bytes, files_min=files_min, settings=layout.digest()
    )
    total = sum(len(one.inputs) for one in merges)
    done: list[tuple[PlannedMerge, DataFile]] = []
    commits = 0
    for some in _portions(merges):
        on_progress(sum(len(one.inputs) for one, _ in done), total)
        tasks = [MergeTask(merge=one, layout=layout) for one in some]
        merged = map_in_workers(spark, tasks, merge_files, DataFile, work_bytes=sum(one.size for one in some))
        if kept := commit_merges(table, list(zip(some, merged, strict=True))):
            done += kept
            commits += 1
    on_progress(total, total)
    return CompactReport(
        files_before=sum(len(one.inputs) for one, _ in done),
        files_after=len(done),
        bytes_before=sum(one.size for one, _ in done),
        bytes_after=sum(file.size for _, file in done),
        rows=sum(file.rows for _, file in done),
        commits=commits,
    )


def commit_merges(
    table: Table, merged: Sequence[tuple[PlannedMerge, DataFile]]
) -> list[tuple[PlannedMerge, DataFile]]:
    """Those that took the place of their inputs: who was faster may have taken some of these away."""
    for _ in range(_COMMITS_MAX):
        state = _state_of(table)
        present = {one.path: one for one in table.files(state)}
        ready = [(one, file) for one, file in merged if all(part.path in present for part in one.inputs)]
        if not ready:
            return []
        removed = [present[part.path] for one, _ in ready for part in one.inputs]
        try:
            table.commit(TableChange(base=state, added=[file for _, file in ready], removed=removed))
        except Conflict:
            logger.info("%s changed while files were merged; the commit is made anew", table.location)
            continue
        for one, file in ready:
            logger.info(
                "%s: %d files became %s, %d rows", table.location, len(one.inputs), file.path, file.rows
            )
        return ready
    raise TableError(
        f"{table.location} changes so often that merged files cannot be committed; pause who writes to it. The files "
        "are kept for the next attempt."
    )


def _state_of(table: Table) -> TableState:
    state = table.state()
    if state is None:
        raise TableError(f"The table at {table.location} is gone.")
    return state


def _portions(merges: Sequence[PlannedMerge]) -> Iterator[list[PlannedMerge]]:
    """So many that a commit does not wait for ever, nor its memory grow."""
    some: list[PlannedMerge] = []
    count = 0
    for one in merges:
        if some and count + len(one.inputs) > _INPUTS_MAX:
            yield some
            some, count = [], 0
        some.append(one)
        count += len(one.inputs)
    if some:
        yield some
