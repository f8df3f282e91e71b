"""Rows put into a file of a table at their place by offset, in a worker.

Invariant: the new file has the rows of its inputs and the new ones, each once, sorted by offset. Memory is bounded by
the new rows, a row group of the input and one of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flintmq.lake.compact.derived_file import DerivedFile, find_derived, inputs_note
from flintmq.lake.compact.merge import row_groups, sorted_inputs
from flintmq.lake.compact.planning import PlannedMerge
from flintmq.lake.quarantine.planning import Insertion
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import conformed
from flintmq.lake.tables.data_file import DataFile, FileName, data_path, digest_of


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
    layout, inputs = task.layout, task.insertion.inputs
    described = _described(task)
    if (found := find_derived(layout.store, described)) is not None:
        return found
    with DerivedFile(layout, inputs_note(inputs)) as derived:
        merge = PlannedMerge(inputs=inputs, path=described.path)
        tables = _inserted(sorted_inputs(merge, layout.store), task)
        for rows in row_groups(tables, layout):
            derived.write(rows)
        return derived.publish(described, rows=sum(one.rows for one in inputs) + task.rows.num_rows)


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


def _described(task: InsertionTask) -> DataFile:
    one = task.insertion
    return DataFile(
        path=task.path,
        size=0,
        rows=0,
        topic=task.topic,
        partition=one.partition,
        start_offset=one.start_offset,
        end_offset=one.end_offset,
        partition_values=one.values,
    )
