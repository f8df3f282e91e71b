"""One file of a table with columns filled from the topic, in a worker.

Invariant: rows, their order and all other columns stay as they are. A row gets values only from the record of its
own offset; where the topic has no such record any more, or one that does not fit the columns, the row keeps what it
has, and is counted. Memory is bounded by a row group of the file and what the topic has within its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.range_reader import read_range
from flintmq.lake.backfill.planning import PlannedFill
from flintmq.lake.compact.derived_file import DerivedFile, inputs_note, open_parquet
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import RowDecoder, conformed
from flintmq.lake.tables.data_file import DataFile

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class FillTask:
    """Can be pickled."""

    fill: PlannedFill
    topic_id: bytes
    layout: FileLayout
    source: SourceOptions
    row_decoder: RowDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledFile:
    file: DataFile
    filled: int
    """Rows that were looked up in the topic, and found."""
    gone: int
    """Rows whose records the topic does not hold any more."""
    unfit: int
    """Rows whose records do not fit the columns."""


def fill_file(task: FillTask) -> FilledFile:
    fill, layout = task.fill, task.layout
    counts = _Counts()
    with (
        DerivedFile(layout, inputs_note([fill.file])) as derived,
        open_parquet(layout.store, fill.file) as file,
    ):
        for batch in _filled(file, task, counts):
            derived.write(pa.Table.from_batches([batch]))
        made = derived.publish(replace(fill.file, path=fill.path), rows=fill.file.rows)
    return FilledFile(file=made, filled=counts.filled, gone=counts.gone, unfit=counts.unfit)


@dataclass(slots=True)
class _Counts:
    filled: int = 0
    gone: int = 0
    unfit: int = 0


def _filled(file: pq.ParquetFile, task: FillTask, counts: _Counts) -> Iterator[pa.RecordBatch]:
    records = _Records(task)
    for batch in file.iter_batches(_BATCH_ROWS):
        rows = conformed(batch, task.layout.schema)
        offsets = rows.column("offset").to_numpy()
        found = records.of(int(offsets[-1]))
        at = found.places(offsets)
        is_open = np.zeros(len(offsets), np.bool_)
        for column, start, end in task.fill.columns:
            is_within = (offsets >= start) & (offsets < end)
            is_open |= is_within
            index = rows.schema.get_field_index(column)
            both = pa.concat_arrays(
                [rows.column(index), conformed(found.rows, task.layout.schema).column(index)]
            )
            chosen = np.where(is_within & (at >= 0), len(offsets) + at, np.arange(len(offsets)))
            rows = rows.set_column(index, rows.schema.field(index), both.take(pa.array(chosen)))
        is_unfit = np.isin(offsets, found.unfit)
        counts.filled += int((is_open & (at >= 0)).sum())
        counts.unfit += int((is_open & (at < 0) & is_unfit).sum())
        counts.gone += int((is_open & (at < 0) & ~is_unfit).sum())
        yield rows


@dataclass(frozen=True, slots=True)
class _Found:
    """Records of some offsets, decoded."""

    rows: pa.RecordBatch
    unfit: np.ndarray[Any, np.dtype[np.int64]]

    def places(self, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return for each offset the index of its row; -1 if there is none."""
        known = self.rows.column("offset").to_numpy()
        if not len(known):
            return np.full(len(offsets), -1, np.int64)
        at = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
        return np.where(known[at] == offsets, at, -1)


class _Records:
    """The topic's records of a file's offsets, decoded, in order."""

    def __init__(self, task: FillTask) -> None:
        self._decoder = task.row_decoder
        start = min(start for _, start, _ in task.fill.columns)
        end = max(end for _, _, end in task.fill.columns)
        file = task.fill.file
        wanted = OffsetRange(file.topic, task.topic_id, file.partition, start, end)
        # What retention has deleted is counted, and no reason to stop.
        source = replace(task.source, fail_on_loss=False)
        self._batches = read_range(wanted, task.row_decoder.columns, source)
        self._waiting: list[pa.RecordBatch] = []
        self._unfit = np.empty(0, np.int64)
        self._reached = start - 1

    def of(self, last: int) -> _Found:
        """Return all up to the offset `last`, and perhaps some behind it, that were not given before."""
        while self._reached < last and (batch := next(self._batches, None)) is not None:
            if not batch.num_rows:
                continue
            self._reached = batch.column("offset")[-1].as_py()
            decoded = self._decoder.decode(batch)
            self._waiting.append(decoded.rows)
            if decoded.poison is not None:
                self._unfit = np.concatenate([self._unfit, decoded.poison.column("offset").to_numpy()])
        rows = pa.Table.from_batches(self._waiting, schema=self._decoder.schema).combine_chunks().to_batches()
        found = rows[0] if rows else pa.RecordBatch.from_pylist([], schema=self._decoder.schema)
        self._waiting = [found.filter(pa.array(found.column("offset").to_numpy() > last))] if rows else []
        return _Found(found, self._unfit)
