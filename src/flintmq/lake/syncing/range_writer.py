"""Writes an offset range of a topic as Parquet files, in a worker: records read, decoded, sorted into partitions.

    written = write_range(task, target)

Invariant: files have the names that follow from what is in them, and are made only where there is none of that name;
one that is there is taken as it is. So any number of attempts at the same range, at once or after one another, give
the same files. Memory is bounded by a row group and by what is decoded at once, whatever the range holds.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.arrow.formats.json.inference import common_columns
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.segment_planner import Task
from flintmq.arrow.scan.task_reader import read_task
from flintmq.lake.limits import SYNC_LIMITS
from flintmq.lake.store.store import Store, StoreError
from flintmq.lake.syncing.planner import range_of
from flintmq.lake.syncing.row_decoder import RowDecoder, conformed
from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues, data_path, digest_of
from flintmq.lake.tables.partitioning import split_by_partition
from flintmq.lake.tables.table import PartitionField, TableError


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """Settings of the writer."""

    compression: str = "zstd"
    level: int | None = 1
    row_group_rows: int = 1 << 20
    row_group_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How files of one table are written. Can be pickled."""

    store: Store
    schema: pa.Schema
    partitioning: tuple[PartitionField, ...] = ()
    parquet: ParquetSettings = ParquetSettings()

    def digest(self, *decoding: object) -> str:
        parquet = list(astuple(self.parquet))
        fields = [[one.column, str(one.transform)] for one in self.partitioning]
        # With all metadata: field ids are part of a file.
        return digest_of(
            self.schema.to_string(show_schema_metadata=False, truncate_metadata=False),
            parquet,
            fields,
            *decoding,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTarget:
    """What is to be done with the records of one topic. Can be pickled."""

    source: SourceOptions
    row_decoder: RowDecoder
    rows: FileLayout
    digest: str
    poison: FileLayout | None
    """None if records are taken as they are."""
    open_files_max: int = SYNC_LIMITS.open_files_max
    table_partitions_max: int = SYNC_LIMITS.table_partitions_max


@dataclass(frozen=True, slots=True)
class WrittenRange:
    rows: tuple[DataFile, ...]
    poison: tuple[DataFile, ...] = ()
    extra: dict[str, int] = field(default_factory=dict)
    """In how many records each field is that has no column."""


class NewColumns(TableError):
    """Records have fields for which the table is to get columns."""

    def __init__(self, columns: pa.Schema) -> None:
        self.columns = columns
        super().__init__(f"There are fields without a column: {', '.join(columns.names)}")


def write_range(task: Task, target: RangeTarget) -> WrittenRange:
    wanted = range_of(task)
    poisoned = _Poisoned(target.digest)
    rows = _Files(wanted, target.rows, poisoned, target)
    if target.row_decoder.is_raw and not target.rows.partitioning and (made := rows.made()) is not None:
        # All of the range is in one file, and an earlier attempt has made it.
        return WrittenRange((made,))
    poison = None if target.poison is None else _Files(wanted, target.poison, poisoned, target)
    extra = ExtraFields()
    new_columns: pa.Schema | None = None
    try:
        for batch in read_task(task, target.row_decoder.columns, target.source):
            decoded = target.row_decoder.decode(batch)
            if decoded.extra is not None:
                extra.merge(decoded.extra.records)
                new_columns = common_columns(new_columns, decoded.extra.columns)
            if new_columns is not None:
                continue  # what is written without these columns would be of no use
            if decoded.poison is not None and poison is not None:
                poisoned.add(decoded.poison)
                poison.add(decoded.poison)
            rows.add(decoded.rows)
        if new_columns is not None:
            raise NewColumns(new_columns)
        return WrittenRange(rows.finish(), () if poison is None else poison.finish(), extra.records)
    finally:
        rows.close()
        if poison is not None:
            poison.close()


class _Poisoned:
    """Which records were poison so far, as a part of every name that is given after them.

    A registry may know a schema at the second attempt that it did not know at the first. Then the same record is
    poison once and a row once, and files of both attempts together would have it twice, or not at all.
    """

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._offsets = hashlib.sha256()
        self._is_any = False

    @property
    def digest(self) -> str:
        return digest_of(self._digest, self._offsets.hexdigest()) if self._is_any else self._digest

    def add(self, poison: pa.RecordBatch) -> None:
        self._offsets.update(poison.column("offset").to_numpy().tobytes())
        self._is_any = True


class _Files:
    """The files of one range in one table."""

    def __init__(
        self, wanted: OffsetRange, layout: FileLayout, poisoned: _Poisoned, target: RangeTarget
    ) -> None:
        self._wanted = wanted
        self._layout = layout
        self._poisoned = poisoned
        self._open_max = target.open_files_max
        self._partitions_max = target.table_partitions_max
        self._seen: set[PartitionValues] = set()
        self._waiting: dict[PartitionValues, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: dict[PartitionValues, _File] = {}
        self._cut: set[PartitionValues] = set()
        """Partitions whose rows are in more than one file."""
        self._done: list[DataFile] = []

    def made(self) -> DataFile | None:
        """The file of the whole range, if it is there."""
        try:
            path = self._path((), self._poisoned.digest)
            return _described(self._layout.store, path, self._wanted, ())
        except StoreError:
            # Not there, or not to be read: publishing it will tell.
            return None

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in split_by_partition(
            conformed(batch, self._layout.schema), self._layout.partitioning
        ):
            if not rows.num_rows:
                continue
            waiting = self._waiting.setdefault(values, _Waiting())
            waiting.add(rows)
            self._waiting_bytes += rows.nbytes
            self._seen.add(values)
            if len(self._seen) > self._partitions_max:
                raise TableError(
                    f"{self._wanted.topic}-{self._wanted.partition}: {self._wanted.size} offsets go to more than "
                    f"{self._partitions_max} partitions of the table, each a file; partition it more coarsely"
                )
            if waiting.row_count >= self._layout.parquet.row_group_rows:
                self._write(values)
        while self._waiting_bytes >= self._layout.parquet.row_group_bytes:
            self._write(max(self._waiting, key=lambda values: self._waiting[values].size))

    def _write(self, values: PartitionValues) -> None:
        waiting = self._waiting.pop(values)
        self._waiting_bytes -= waiting.size
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= self._open_max:
                longest = next(iter(self._open))
                self._cut.add(longest)
                self._end(longest)
            file = self._open[values] = _File(self._layout)
        file.write(waiting.batches)

    def _end(self, values: PartitionValues) -> None:
        file = self._open.pop(values)
        digest = self._poisoned.digest
        if values in self._cut:
            # Where rows are cut depends on how they were read: another attempt may cut them elsewhere.
            digest = digest_of(digest, file.first_offset, file.last_offset)
        try:
            self._done.append(file.publish(self._path(values, digest), self._wanted, values))
        finally:
            file.close()

    def _path(self, values: PartitionValues, digest: str) -> str:
        name = FileName(
            topic_id=self._wanted.topic_id.hex(),
            partition=self._wanted.partition,
            start_offset=self._wanted.start,
            end_offset=self._wanted.end,
            digest=digest,
        )
        return data_path(name, values)

    def finish(self) -> tuple[DataFile, ...]:
        """All of them, durable."""
        # Those that have a file first, so that none is cut for want of place.
        for values in sorted(self._waiting, key=lambda values: values not in self._open):
            self._write(values)
            self._end(values)
        for values in list(self._open):
            self._end(values)
        return tuple(self._done)

    def close(self) -> None:
        for file in self._open.values():
            file.close()


class _Waiting:
    """Rows of one partition, until they are worth a row group."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size = 0
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.size += batch.nbytes
        self.row_count += batch.num_rows


class _File:
    """A Parquet file on its way."""

    def __init__(self, layout: FileLayout) -> None:
        self.first_offset = -1
        self.last_offset = -1
        self._store = layout.store
        self._row_group_rows = layout.parquet.row_group_rows
        self._metadata: list[Any] = []
        self._context: AbstractContextManager[BinaryIO] = layout.store.draft()
        self._draft = self._context.__enter__()
        self._writer = parquet_writer(self._draft, layout, self._metadata)

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        if self.first_offset < 0:
            self.first_offset = batches[0].column("offset")[0].as_py()
        self.last_offset = batches[-1].column("offset")[-1].as_py()
        table = pa.Table.from_batches(batches)
        with writing(self._store):
            self._writer.write_table(table, row_group_size=self._row_group_rows)

    def publish(self, path: str, wanted: OffsetRange, values: PartitionValues) -> DataFile:
        with writing(self._store):
            self._writer.close()
        size = self._draft.tell()
        if not self._store.publish(self._draft, path):
            return _described(self._store, path, wanted, values)
        return _data_file(path, size, self._metadata[0], wanted, values)

    def close(self) -> None:
        # One that was given up must not be ended when it is collected: its draft is gone by then.
        self._writer.is_open = False
        self._context.__exit__(None, None, None)


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """A disk that is full, or broken, is the store's error."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"a file for {store.url} cannot be written: {error}. See to the disk, then start again"
        ) from error


def parquet_writer(sink: BinaryIO, layout: FileLayout, metadata: list[Any]) -> Any:
    """Dictionaries and statistics where they pay: not for the bytes of keys and values, which seldom repeat."""
    leaves = list(_leaves(layout.schema))
    telling = [path for path, kind in leaves if not _is_blob(kind)]
    steady = {
        name: "DELTA_BINARY_PACKED"
        for name in ("offset", "timestamp")
        if layout.schema.get_field_index(name) >= 0
    }
    return pq.ParquetWriter(
        sink,
        layout.schema,
        compression=layout.parquet.compression,
        compression_level=layout.parquet.level,
        use_dictionary=[path for path in telling if path not in steady],
        column_encoding=steady or None,
        write_statistics=telling,
        sorting_columns=[pq.SortingColumn([path for path, _ in leaves].index("offset"))],
        metadata_collector=metadata,
    )


def _leaves(schema: pa.Schema) -> Iterator[tuple[str, Any]]:
    """The columns of a Parquet file in their order, each by its path."""
    for column in schema:
        yield from _leaves_of(column.name, column.type)


def _leaves_of(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(kind):
        for inner in kind:
            yield from _leaves_of(f"{path}.{inner.name}", inner.type)
    elif pa.types.is_map(kind):
        yield from _leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_blob(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _described(store: Store, path: str, wanted: OffsetRange, values: PartitionValues) -> DataFile:
    """A file that somebody else has made."""
    with store.open(path) as file:
        return _data_file(path, file.size(), pq.read_metadata(file), wanted, values)


def with_footer(store: Store, file: DataFile) -> DataFile:
    """A file of which only the name is known."""
    with store.open(file.path) as opened:
        footer = footer_of(pq.read_metadata(opened))
    return replace(file, footer=footer)


def footer_of(metadata: Any) -> bytes:
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    return written.getvalue()


def _data_file(path: str, size: int, metadata: Any, wanted: OffsetRange, values: PartitionValues) -> DataFile:
    return DataFile(
        path=path,
        size=size,
        rows=metadata.num_rows,
        topic=wanted.topic,
        partition=wanted.partition,
        start_offset=wanted.start,
        end_offset=wanted.end,
        partition_values=values,
        footer=footer_of(metadata),
    )
