"""Files of a table merged into one, in a worker.

Invariant: rows come out in the order of their offsets, all of them, and with the table's columns. The merged file is
made only where there is none of its name, and names its inputs in its own metadata: it is of use only while they
are all in the table. Memory is bounded by a row group of the input and one of the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.compact.planning import PlannedMerge
from flintmq.lake.store.store import Store, StoreError
from flintmq.lake.syncing.range_writer import (
    FileLayout,
    footer_of,
    parquet_writer,
)
from flintmq.lake.syncing.row_decoder import conformed
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.table import TableError

INPUTS: Final = "flintmq.inputs"
_WHOLE_BYTES: Final = 8 * 1024 * 1024
"""A file of up to this size is fetched at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    merge: PlannedMerge
    layout: FileLayout


def merge_files(task: MergeTask) -> DataFile:
    merge, layout = task.merge, task.layout
    try:
        return _described(layout.store, merge)
    except StoreError:
        pass  # not there, as one would expect
    metadata: list[Any] = []
    with layout.store.draft() as draft:
        writer = parquet_writer(draft, layout, metadata)
        for rows in row_groups(sorted_inputs(merge, layout.store), layout):
            writer.write_table(rows, row_group_size=layout.parquet.row_group_rows)
        writer.add_key_value_metadata({INPUTS: json.dumps(sorted(one.path for one in merge.inputs))})
        writer.close()
        size = draft.tell()
        if metadata[0].num_rows != sum(one.rows for one in merge.inputs):
            raise TableError(
                f"{merge.path}: the files to merge have not the rows that the table counts; audit it."
            )
        if layout.store.publish(draft, merge.path):
            return _data_file(merge, size, metadata[0])
    return _described(layout.store, merge)


def inputs_of(store: Store, path: str) -> list[str]:
    """What a merged file was made from."""
    with store.open(path) as file:
        metadata = pq.read_metadata(file).metadata or {}
    found: list[str] = json.loads(metadata.get(INPUTS.encode(), b"[]"))
    return found


def open_parquet(store: Store, one: DataFile) -> pq.ParquetFile:
    if one.size > _WHOLE_BYTES:
        return pq.ParquetFile(store.open(one.path))
    data = store.get(one.path)
    if data is None:
        raise TableError(f"{store.url}/{one.path} is in the table and not in the store; audit the table.")
    return pq.ParquetFile(pa.BufferReader(data))


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


def _described(store: Store, merge: PlannedMerge) -> DataFile:
    with store.open(merge.path) as file:
        return _data_file(merge, file.size(), pq.read_metadata(file))


def _data_file(merge: PlannedMerge, size: int, metadata: Any) -> DataFile:
    first = merge.inputs[0]
    return DataFile(
        path=merge.path,
        size=size,
        rows=metadata.num_rows,
        topic=first.topic,
        partition=first.partition,
        start_offset=min(one.start_offset for one in merge.inputs),
        end_offset=max(one.end_offset for one in merge.inputs),
        partition_values=first.partition_values,
        footer=footer_of(metadata),
    )
