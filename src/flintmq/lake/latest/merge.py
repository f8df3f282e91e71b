"""The last row of each key of a partition, kept in buckets by the key's hash; in a worker.

New rows are spread over the buckets, on disk if there are many; then each bucket that has new rows is made anew from
its old file and these. Invariant: of a key the row with the greatest offset stays, unless it is a tombstone; a bucket
without new rows keeps its file. Memory is bounded by a row group and by one bucket, whatever the partition holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.codec.partitioner import murmur2_of
from flintmq.lake.compact.derived_file import DerivedFile, open_parquet
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import ORIGIN, conformed
from flintmq.lake.tables.data_file import DataFile, FileName, data_path, digest_of
from flintmq.lake.tables.table import TableError

KIND: Final = "flintmq.kind"
LATEST: Final = "latest"
"""The kind of such tables, among their properties."""
BUCKET: Final = "flintmq.bucket"
"""In a file's own metadata: which bucket, of how many."""
BUCKET_BYTES: Final = 32 * 1024 * 1024
BUCKETS_MAX: Final = 256
"""Each is an open file while rows are spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestTask:
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    """Up to here the old files go."""
    end_offset: int
    source: FileLayout
    new: tuple[DataFile, ...]
    """Of the source, with rows from `start_offset` on."""
    target: FileLayout
    old: tuple[DataFile, ...]
    bucket_bytes: int = BUCKET_BYTES
    version: tuple[str, ...] = ()
    """Of the source, beside its offsets: rows may come between those that are known, or be made anew."""
    read_offset: int | None = None
    """From where on the source is read, if rows have come before `start_offset`."""

    @property
    def first_offset(self) -> int:
        return self.start_offset if self.read_offset is None else self.read_offset


@dataclass(frozen=True, slots=True)
class LatestPart:
    """What takes the place of what."""

    added: tuple[DataFile, ...]
    removed: tuple[str, ...]


def merge_latest(task: LatestTask) -> LatestPart:
    old, before = _old_buckets(task)
    count = _bucket_count(task, before)
    is_spread_anew = count != before
    sources = (*task.old, *task.new) if is_spread_anew else task.new
    with ExitStack() as stack:
        spills = [stack.enter_context(_Spill(task.target.schema)) for _ in range(count)]
        for one in sources:
            for rows in _rows(task, one):
                _spread(rows, spills)
        added, removed = [], [one.path for one in task.old] if is_spread_anew else []
        for bucket, spill in enumerate(spills):
            if not spill.row_count:
                continue
            kept = None if is_spread_anew else old.get(bucket)
            parts = [spill.read()]
            if kept is not None:
                parts.insert(0, _read_all(task, kept))
                removed.append(kept.path)
            rows = without_tombstones(last_of_keys(pa.concat_tables(parts)))
            if rows.num_rows:
                added.append(_write(task, rows, bucket, count))
    return LatestPart(tuple(added), tuple(removed))


def last_of_keys(rows: pa.Table) -> pa.Table:
    """Sorted by offset; rows without a key are left out."""
    rows = rows.filter(pc.is_valid(rows.column("key")))
    last = rows.group_by("key", use_threads=False).aggregate([("offset", "max")]).column("offset_max")
    if len(last) < rows.num_rows:
        rows = rows.filter(pc.is_in(rows.column("offset"), value_set=last.combine_chunks()))
    return rows.sort_by("offset")


def without_tombstones(rows: pa.Table) -> pa.Table:
    """A tombstone has no value: in a shaped table nothing in any decoded column."""
    is_raw = tuple(rows.column_names) == COLUMNS
    names = ("value",) if is_raw else tuple(name for name in rows.column_names if name not in ORIGIN)
    valid: Any = None
    for name in names:
        one = pc.is_valid(rows.column(name))
        valid = one if valid is None else pc.or_(valid, one)
    return rows if valid is None else rows.filter(valid)


def _old_buckets(task: LatestTask) -> tuple[dict[int, DataFile], int]:
    found: dict[int, DataFile] = {}
    count = 1
    for one in task.old:
        with task.target.store.open(one.path) as file:
            kept = (pq.read_metadata(file).metadata or {}).get(BUCKET.encode())
        if kept is None:
            raise TableError(
                f"{one.path} was not written by lake latest; move the table away and make it anew."
            )
        bucket, count = (int(number) for number in kept.split(b"/"))
        found[bucket] = one
    return found, count


def _bucket_count(task: LatestTask, before: int) -> int:
    size = sum(one.size for one in (*task.old, *task.new))
    count = before
    while count < BUCKETS_MAX and size > 2 * count * task.bucket_bytes:
        count *= 2
    return count


def _rows(task: LatestTask, one: DataFile) -> Iterator[pa.Table]:
    """Of each row group what counts: of the source, only what the old files do not know."""
    is_old = one in task.old
    layout = task.target if is_old else task.source
    with open_parquet(layout.store, one) as file:
        for group in range(file.num_row_groups):
            if not is_old and _ends_before(file.metadata.row_group(group), task.first_offset):
                continue
            rows = _fit(file.read_row_group(group), task.target.schema)
            if not is_old:
                offsets = rows.column("offset")
                inside = pc.and_(
                    pc.greater_equal(offsets, task.first_offset), pc.less(offsets, task.end_offset)
                )
                rows = rows.filter(inside)
            yield last_of_keys(rows)


def _ends_before(group: Any, offset: int) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset" and column.is_stats_set:
            return bool(column.statistics.max < offset)
    return False


def _read_all(task: LatestTask, one: DataFile) -> pa.Table:
    with open_parquet(task.target.store, one) as file:
        return _fit(file.read(), task.target.schema)


def _fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([conformed(batch, schema) for batch in rows.to_batches()], schema=schema)


def _spread(rows: pa.Table, spills: Sequence[_Spill]) -> None:
    if not rows.num_rows:
        return
    if len(spills) == 1:
        spills[0].write(rows)
        return
    hashes = murmur2_of(rows.column("key").combine_chunks())
    # The low bits chose the topic's partition, and are much the same for all of its keys.
    buckets = (hashes >> np.uint32(20)) % np.uint32(len(spills))
    order = np.argsort(buckets, kind="stable")
    edges = np.searchsorted(buckets[order], np.arange(len(spills) + 1))
    ordered = rows.take(pa.array(order))
    for bucket, spill in enumerate(spills):
        if edges[bucket] < edges[bucket + 1]:
            spill.write(ordered.slice(edges[bucket], edges[bucket + 1] - edges[bucket]))


def _write(task: LatestTask, rows: pa.Table, bucket: int, count: int) -> DataFile:
    name = FileName(
        topic_id=task.topic_id,
        partition=task.partition,
        start_offset=task.start_offset,
        end_offset=task.end_offset,
        digest=digest_of(LATEST, bucket, count, task.target.digest(), *task.version),
    )
    described = DataFile(
        path=data_path(name),
        size=0,
        rows=0,
        topic=task.topic,
        partition=task.partition,
        start_offset=task.start_offset,
        end_offset=task.end_offset,
    )
    with DerivedFile(task.target, {BUCKET: f"{bucket}/{count}"}) as derived:
        derived.write(rows)
        return derived.publish(described)


class _Spill:
    """Rows of a bucket on disk, under no name: nothing stays behind."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._file: Any = None
        self._writer: Any = None
        self.row_count = 0

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, rows: pa.Table) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._file, self._schema, options=options)
        self._writer.write_table(rows)
        self.row_count += rows.num_rows

    def read(self) -> pa.Table:
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            return reader.read_all()
