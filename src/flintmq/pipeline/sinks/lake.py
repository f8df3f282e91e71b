"""Batches of a stream as commits to a table of the lake, each once.

    frame.writeStream.foreachBatch(LakeSink(pipeline, sink, checkpoint_id))

Workers write Parquet files of their own names; the driver commits those of the attempts that succeeded, together with
the number of the batch as a property of the table. Invariant: a table has a batch wholly or not at all, and once: a
batch whose number the table knows is not written again. Files that no commit names are rubbish, which `lake clean`
removes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.errors import ConfigurationError
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.range_writer import FileLayout, footer_of
from flintmq.lake.syncing.row_decoder import conformed
from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues, data_path, digest_of
from flintmq.lake.tables.factory import OpenedTable, open_table_at
from flintmq.lake.tables.partitioning import check_partitioning, parse_partitioning, split_by_partition
from flintmq.lake.tables.schema_evolution import is_same_schema, small_types
from flintmq.lake.tables.table import Conflict, TableChange, TableError, TableState
from flintmq.pipeline.spec.model import Pipeline, TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PROPERTY: Final = "flintmq.pipeline."
_FILE: Final = "file binary"
_ROW_GROUP_ROWS: Final = 1 << 20
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_OPEN_MAX: Final = 64
_COMMIT_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class LakeSinkProgress:
    """What a table says of the sink that writes it."""

    checkpoint: str
    batch: int

    @staticmethod
    def of(state: TableState, name: str) -> LakeSinkProgress | None:
        text = state.properties.get(name)
        return None if text is None else LakeSinkProgress(**json.loads(text))

    def text(self) -> str:
        return json.dumps({"checkpoint": self.checkpoint, "batch": self.batch})


class LakeSink:
    def __init__(self, pipeline: Pipeline, sink: TableSink, checkpoint_id: str, *, run: str = "") -> None:
        self._place = (pipeline.path(sink.table), str(sink.format), dict(sink.options))
        self._name = PROPERTY + ".".join(part for part in (pipeline.name, sink.name, run) if part)
        self._checkpoint = checkpoint_id
        self._replaces = sink.mode == "complete"
        self._partitioning = parse_partitioning([str(one) for one in sink.partition_by])
        self._opened: OpenedTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def opened(self) -> OpenedTable:
        if self._opened is None:
            self._opened = open_table_at(*self._place)
        return self._opened

    def prepare(self, schema: StructType) -> None:
        """Make the table if there is none; say what does not fit before anything runs."""
        columns = arrow_schema(schema)
        check_partitioning(self._partitioning, columns)
        state = self.opened.table.state()
        if state is None:
            try:
                self.opened.table.create(columns, partitioning=self._partitioning)
                return
            except Conflict:
                state = self._state()
        if self._partitioning and self._partitioning != tuple(state.partitioning):
            raise ConfigurationError(f"{self.opened.table.location} is partitioned in another way")
        self.opened.table.evolved(state, columns)

    def check_progress(self) -> str | None:
        """What is wrong if the table was written by this sink under another checkpoint."""
        state = self.opened.table.state()
        before = None if state is None else LakeSinkProgress.of(state, self._name)
        if before is None or before.checkpoint == self._checkpoint:
            return None
        return (
            f"{self.opened.table.location} has {before.batch + 1} batches of this sink under another checkpoint; "
            "going on from a new one adds rows that are there already"
        )

    def has(self, batch_id: int) -> bool:
        """Then it is not run again."""
        state = self.opened.table.state()
        return state is not None and self._is_done(state, batch_id)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        state = self._state()
        if self._is_done(state, batch_id):
            return
        schema = self.opened.table.evolved(state, arrow_schema(batch.schema))
        layout = FileLayout(store=self.opened.store, schema=schema, partitioning=state.partitioning)
        task: Any = _Writing(layout, digest_of(self._name, self._checkpoint), batch_id)
        written = batch.mapInArrow(task, _FILE).toArrow().column(0)
        files = [msgspec.msgpack.decode(one.as_py(), type=DataFile) for one in written]
        self._commit(state, files, schema, batch_id)

    def _commit(self, state: TableState, files: Sequence[DataFile], schema: pa.Schema, batch_id: int) -> None:
        for _ in range(_COMMIT_ATTEMPTS):
            if self._is_done(state, batch_id):
                return
            progress = LakeSinkProgress(self._checkpoint, batch_id).text()
            try:
                self.opened.table.commit(
                    TableChange(
                        base=state,
                        added=files,
                        removed=list(self.opened.table.files(state)) if self._replaces else (),
                        schema=None if is_same_schema(schema, state.schema) else schema,
                        properties={**state.properties, self._name: progress},
                    )
                )
                return
            except Conflict:
                # Somebody else writes the table too; our files are as good on top of theirs.
                state = self._state()
        raise TableError(f"{self.opened.table.location} is changed by others again and again; try later.")

    def _is_done(self, state: TableState, batch_id: int) -> bool:
        before = LakeSinkProgress.of(state, self._name)
        return before is not None and before.checkpoint == self._checkpoint and before.batch >= batch_id

    def _state(self) -> TableState:
        state = self.opened.table.state()
        if state is None:
            raise TableError(f"{self.opened.table.location} is gone; start the pipeline again.")
        return state


def arrow_schema(schema: StructType) -> pa.Schema:
    """As tables hold it: times in UTC, and offsets of 32 bits."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([pa.field(one.name, small_types(one.type)) for one in found])


@dataclass(frozen=True)
class _Writing:
    """One task of a batch, in a worker: rows in, what its files are out. Can be pickled."""

    layout: FileLayout
    sink: str
    """As hexadecimal digits."""
    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = list(self._files(batches))
        if files:
            found = pa.array([msgspec.msgpack.encode(one) for one in files], pa.binary())
            yield pa.RecordBatch.from_arrays([found], names=["file"])

    def _files(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        under_way: dict[PartitionValues, _File] = {}
        try:
            for batch in batches:
                rows_of = split_by_partition(conformed(batch, self.layout.schema), self.layout.partitioning)
                for values, rows in rows_of:
                    if not rows.num_rows:
                        continue
                    if values not in under_way and len(under_way) >= _OPEN_MAX:
                        longest = next(iter(under_way))
                        with closing(under_way.pop(longest)) as file:
                            yield file.publish(longest)
                    if values not in under_way:
                        under_way[values] = _File(self)
                    under_way[values].add(rows)
            for values in list(under_way):
                with closing(under_way.pop(values)) as file:
                    yield file.publish(values)
        finally:
            for file in under_way.values():
                file.close()


class _File:
    def __init__(self, task: _Writing) -> None:
        self._task = task
        self._store = task.layout.store
        self._context: Any = self._store.draft()
        self._draft = self._context.__enter__()
        parquet = task.layout.parquet
        self._metadata: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        """Rows that are not worth a row group yet."""
        self._writer = pq.ParquetWriter(
            self._draft,
            task.layout.schema,
            compression=parquet.compression,
            compression_level=parquet.level,
            metadata_collector=self._metadata,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        if (
            sum(one.num_rows for one in self._waiting) >= _ROW_GROUP_ROWS
            or sum(one.nbytes for one in self._waiting) >= _ROW_GROUP_BYTES
        ):
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._waiting = []
        try:
            self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        except OSError as error:
            raise StoreError(f"a file for {self._store.url} cannot be written: {error}") from error

    def publish(self, values: PartitionValues) -> DataFile:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        # A name that no other attempt has: two of them need not have the same rows.
        name = FileName(
            topic_id=self._task.sink,
            partition=partition,
            start_offset=self._task.batch,
            end_offset=self._task.batch + 1,
            digest=uuid.uuid4().hex,
        )
        self._write()
        try:
            self._writer.close()
            size = self._draft.tell()
        except OSError as error:
            raise StoreError(f"a file for {self._store.url} cannot be written: {error}") from error
        path = data_path(name, values)
        if not self._store.publish(self._draft, path):
            raise StoreError(f"{path} is there already, which cannot be.")
        return DataFile(
            path=path,
            size=size,
            rows=self._metadata[0].num_rows,
            topic="",
            partition=partition,
            start_offset=self._task.batch,
            end_offset=self._task.batch + 1,
            partition_values=values,
            footer=footer_of(self._metadata[0]),
        )

    def close(self) -> None:
        # One that was given up must not be ended when it is collected: its draft is gone by then.
        self._writer.is_open = False
        self._context.__exit__(None, None, None)
