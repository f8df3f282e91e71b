"""Rows put into a file of a table at their place by offset, in a worker.

Invariant: the new file has the rows of its inputs and the new ones, each once, sorted by offset. It is made only
where there is none of its name, and names its inputs in its own metadata, as a merged file does: it is of use only
while they are all in the table. Memory is bounded by the new rows, a row group of the input and one of the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.compact.merge import INPUTS, row_groups, sorted_inputs
from flintmq.lake.compact.planning import PlannedMerge
from flintmq.lake.quarantine.planning import Insertion
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.range_writer import FileLayout, footer_of, parquet_writer
from flintmq.lake.syncing.row_decoder import conformed
from flintmq.lake.tables.data_file import DataFile, FileName, data_path, digest_of
from flintmq.lake.tables.table import TableError


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertionTask:
    """Can be pickled."""

    insertion: Insertion
    rows: pa.Table
    """Sorted by offset, with the table's columns."""
    layout: FileLayout
    topic: str
    topic_id: str
    decoding: str
    """How the rows were decoded: a part of the file's name."""

    @property
    def path(self) -> str:
        one = self.insertion
        name = FileName(
            topic_id=self.topic_id,
            partition=one.partition,
            start_offset=one.start_offset,
            end_offset=one.end_offset,
            digest=digest_of(
                [file.path for file in one.inputs], list(one.offsets), self.layout.digest(self.decoding)
            ),
            is_merged=True,
        )
        return data_path(name, one.values)


def insert_rows(task: InsertionTask) -> DataFile:
    path, layout, inputs = task.path, task.layout, task.insertion.inputs
    try:
        return _described(task, path)
    except StoreError:
        pass  # not there, as one would expect
    metadata: list[Any] = []
    with layout.store.draft() as draft:
        writer = parquet_writer(draft, layout, metadata)
        merge = PlannedMerge(inputs=inputs, path=path)
        tables = _inserted(sorted_inputs(merge, layout.store), task)
        for rows in row_groups(tables, layout):
            writer.write_table(rows, row_group_size=layout.parquet.row_group_rows)
        writer.add_key_value_metadata({INPUTS: json.dumps(sorted(one.path for one in inputs))})
        writer.close()
        size = draft.tell()
        if metadata[0].num_rows != sum(one.rows for one in inputs) + task.rows.num_rows:
            raise TableError(
                f"{path}: the files that rows are put into have not the rows that the table counts; audit it."
            )
        if layout.store.publish(draft, path):
            return _data_file(task, path, size, metadata[0])
    return _described(task, path)


def _inserted(tables: Iterator[pa.Table], task: InsertionTask) -> Iterator[pa.Table]:
    """Yield the tables with the new rows at their places."""
    offsets = task.rows.column("offset").to_numpy()
    at = 0
    for table in tables:
        if not table.num_rows:
            continue
        last = table.column("offset")[-1].as_py()
        until = int(np.searchsorted(offsets, last, side="right"))
        if until == at:
            yield table
            continue
        both = pa.concat_tables([_fit(table, task.layout.schema), task.rows.slice(at, until - at)])
        # A row of the same offset is found where the order is checked.
        order = np.argsort(both.column("offset").to_numpy(), kind="stable")
        yield both.take(pa.array(order))
        at = until
    yield task.rows.slice(at)


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([conformed(batch, schema) for batch in table.to_batches()], schema=schema)


def _described(task: InsertionTask, path: str) -> DataFile:
    with task.layout.store.open(path) as file:
        return _data_file(task, path, file.size(), pq.read_metadata(file))


def _data_file(task: InsertionTask, path: str, size: int, metadata: Any) -> DataFile:
    one = task.insertion
    return DataFile(
        path=path,
        size=size,
        rows=metadata.num_rows,
        topic=task.topic,
        partition=one.partition,
        start_offset=one.start_offset,
        end_offset=one.end_offset,
        partition_values=one.values,
        footer=footer_of(metadata),
    )
