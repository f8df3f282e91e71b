"""Rows of a table as an audit reads them: the files of a section in the order of offsets, checked for being in place.

Invariant: rows come out as they are in the files, none left out whose offset is in the section; of a file that lies
in one range all rows come out, whatever their offsets are. Memory is bounded by one row group and one batch, or by a
range that several files share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flintmq.lake.audit.comparison import Findings
from flintmq.lake.audit.planning import CoveredRange, PartitionSection, SourcePartition
from flintmq.lake.audit.report import AuditProblemKind
from flintmq.lake.store.store import Store, StoreError
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.table import TableError

BATCH_ROWS: Final = 16 * 1024
_WHOLE_BYTES: Final = 8 * 1024 * 1024
"""A file of up to this size is fetched at once."""
_TOPIC: Final = "topic"
_PARTITION: Final = "partition"


class LakeRows:
    """Of one section; may be read again."""

    def __init__(
        self,
        store: Store,
        section: PartitionSection,
        findings: Findings,
        *,
        required: Sequence[str],
        sort: bool,
    ) -> None:
        """`required` are columns that every file has.

        `sort`: all rows of each covered are read before the first comes out, and sorted.
        """
        self.rows_by_file: dict[str, int] = {}
        self._store = store
        self._section = section
        self._findings = findings
        self._required = required
        self._sort = sort

    def batches(self) -> Iterator[pa.RecordBatch]:
        for covered in self._section.ranges:
            if self._sort or len(covered.files) > 1:
                yield from self._sorted(covered)
            else:
                for one in covered.files:
                    yield from self._rows(one, covered)

    def _sorted(self, covered: CoveredRange) -> Iterator[pa.RecordBatch]:
        batches = [batch for one in covered.files for batch in self._rows(one, covered)]
        if batches:
            table = pa.concat_tables(
                [pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive"
            )
            order = np.argsort(table.column("offset").to_numpy(), kind="stable")
            yield from table.take(pa.array(order)).combine_chunks().to_batches(BATCH_ROWS)

    def _rows(self, one: DataFile, covered: CoveredRange) -> Iterator[pa.RecordBatch]:
        is_whole = covered.start <= one.start_offset and one.end_offset <= covered.end
        count = 0
        try:
            with self._opened(one) as file:
                missing = [name for name in self._required if name not in file.schema_arrow.names]
                if missing:
                    raise UnreadableFile(one, f"it has no column {missing[0]}")
                groups = None if is_whole else _groups(file, covered.start, covered.end)
                for batch in _read(file, groups):
                    if batch.column("offset").null_count:
                        raise UnreadableFile(one, "it has rows without an offset")
                    if not is_whole:
                        offsets = batch.column("offset")
                        inside = pc.and_(
                            pc.greater_equal(offsets, covered.start), pc.less(offsets, covered.end)
                        )
                        batch = batch.filter(inside)
                    count += batch.num_rows
                    if batch.num_rows:
                        yield self._in_place(batch)
        except (pa.ArrowException, OSError, KeyError, StoreError) as why:
            raise UnreadableFile(one, str(why)) from why
        self.rows_by_file[one.path] = self.rows_by_file.get(one.path, 0) + count

    def _opened(self, one: DataFile) -> pq.ParquetFile:
        # The topic is one word for all rows: as codes it need not be made for each.
        codes = [_TOPIC] if _TOPIC in self._required else None
        if one.size <= _WHOLE_BYTES and (data := self._store.get(one.path)) is not None:
            return pq.ParquetFile(pa.BufferReader(data), read_dictionary=codes)
        return pq.ParquetFile(self._store.open(one.path), read_dictionary=codes)

    def _in_place(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the columns that are the same in every row, which are looked at here."""
        source: SourcePartition = self._section.source
        for name, value in ((_TOPIC, source.topic), (_PARTITION, source.partition)):
            at = batch.schema.get_field_index(name)
            if at >= 0:
                others = _others(batch.column(at), value)
                if others is not None:
                    self._findings.differ(
                        AuditProblemKind.CHANGED, batch.column("offset").to_numpy()[others], name
                    )
                batch = batch.remove_column(at)
        return batch


class UnreadableFile(TableError):
    def __init__(self, file: DataFile, why: str) -> None:
        self.file = file
        self.why = why
        super().__init__(f"{file.path} cannot be read: {why}")


def _read(file: pq.ParquetFile, groups: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    if groups is not None and not groups:
        return
    chosen: dict[str, Any] = {} if groups is None else {"row_groups": list(groups)}
    yield from file.iter_batches(BATCH_ROWS, use_threads=False, **chosen)


def _groups(file: pq.ParquetFile, start: int, end: int) -> list[int]:
    """The row groups that may hold these offsets, by their statistics."""
    metadata = file.metadata
    index = file.schema_arrow.get_field_index("offset")
    column = next(
        at
        for at in range(metadata.num_columns)
        if metadata.schema.column(at).path == file.schema_arrow.names[index]
    )
    found = []
    for at in range(metadata.num_row_groups):
        statistics = metadata.row_group(at).column(column).statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or (statistics.min < end and statistics.max >= start)
        ):
            found.append(at)
    return found


def _others(column: Any, value: object) -> Any:
    """The rows in which the column is something else; None if there are none."""
    if pa.types.is_dictionary(column.type):
        if not column.null_count and column.dictionary.to_pylist() == [value]:
            return None
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) and not column.null_count and (column.to_numpy() == value).all():
        # Far cheaper than Arrow's flags, which become NumPy's one by one.
        return None
    same = pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False).to_numpy(zero_copy_only=False)
    return None if same.all() else np.flatnonzero(~same)
