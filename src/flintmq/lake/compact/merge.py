"""Files of a table merged into one, in a worker.

Invariant: rows come out in the order of their offsets, all of them, and with the table's columns. Memory is bounded
by a row group of the input and one of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.compact.derived_file import DerivedFile, find_derived, inputs_note, open_parquet
from flintmq.lake.compact.planning import PlannedMerge
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import conformed
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.table import TableError


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    merge: PlannedMerge
    layout: FileLayout


def merge_files(task: MergeTask) -> DataFile:
    merge, layout = task.merge, task.layout
    described = _described(merge)
    if (found := find_derived(layout.store, described)) is not None:
        return found
    with DerivedFile(layout, inputs_note(merge.inputs)) as derived:
        for rows in row_groups(sorted_inputs(merge, layout.store), layout):
            derived.write(rows)
        return derived.publish(described, rows=sum(one.rows for one in merge.inputs))


def sorted_inputs(merge: PlannedMerge, store: Store) -> Iterator[pa.Table]:
    """Row group after row group. Of one range there may be several files, whose order their rows tell."""
    opened: list[tuple[int, pq.ParquetFile]] = []
    at: tuple[int, int] | None = None
    for one in merge.inputs:
        if at != (one.start_offset, one.end_offset):
            yield from _all_groups(opened)
            opened, at = [], (one.start_offset, one.end_offset)
        file = open_parquet(store, one)
        opened.append((_first_offset(file), file))
    yield from _all_groups(opened)


def _all_groups(opened: list[tuple[int, pq.ParquetFile]]) -> Iterator[pa.Table]:
    for _, file in sorted(opened, key=lambda pair: pair[0]):
        with file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def _first_offset(file: pq.ParquetFile) -> int:
    if not file.metadata.num_row_groups:
        return 0
    first = file.metadata.row_group(0)
    for index in range(first.num_columns):
        column = first.column(index)
        if column.path_in_schema == "offset" and column.is_stats_set:
            return int(column.statistics.min)
    return int(file.read_row_group(0, columns=["offset"]).column(0)[0].as_py())


def row_groups(tables: Iterator[pa.Table], layout: FileLayout) -> Iterator[pa.Table]:
    """As large as writers make them."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    last = -1
    for table in tables:
        for batch in table.to_batches():
            if not batch.num_rows:
                continue
            last = _last_offset(batch, last)
            waiting.append(conformed(batch, layout.schema))
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= layout.parquet.row_group_rows or size >= layout.parquet.row_group_bytes:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _last_offset(batch: pa.RecordBatch, before: int) -> int:
    offsets = batch.column("offset")
    if (first := offsets[0].as_py()) <= before:
        raise TableError(
            f"A row of offset {first} comes behind one of {before} in files that are sorted; audit the table."
        )
    last: int = offsets[-1].as_py()
    return last


def _described(merge: PlannedMerge) -> DataFile:
    first = merge.inputs[0]
    return DataFile(
        path=merge.path,
        size=0,
        rows=0,
        topic=first.topic,
        partition=first.partition,
        start_offset=min(one.start_offset for one in merge.inputs),
        end_offset=max(one.end_offset for one in merge.inputs),
        partition_values=first.partition_values,
    )
