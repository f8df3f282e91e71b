"""Workloads of `python -m bench.spark` that are about the lake: a topic into tables, beside the connector and Spark.

Both write the same columns as Parquet with the same codec and level. Spark has no Iceberg or Delta of its own here:
what ours does for such a table is held against Spark's plain Parquet. Of an audit there is only a rate.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.stage import OURS, Stage, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ZSTD_LEVEL: Final = 1
SMALL_FILES: Final = 1_000
SMALL_ROWS: Final = 2_000
AUDIT_ROWS_PER_CPU_S: Final = 3_500_000

_CONNECTOR: Final = "kafka"
_BINARY: Final = ("key", "value")


def to_parquet(stage: Stage, side: str) -> None:
    _to_table(stage, side, "parquet")


def to_iceberg(stage: Stage, side: str) -> None:
    _to_table(stage, side, "iceberg")


def to_delta(stage: Stage, side: str) -> None:
    _to_table(stage, side, "delta")


def _to_table(stage: Stage, side: str, kind: str) -> None:
    from flintmq.lake import sync

    with _folder(stage) as folder:
        if side == OURS:
            done = sync(
                stage.spark,
                stage.topic.name,
                to=folder,
                format=kind,
                bootstrap_servers=stage.broker.bootstrap,
                group=f"bench-{os.path.basename(folder)}",
            )
            rows = done.rows
        else:
            frame = stage.read(_CONNECTOR, includeHeaders="true")
            _write(frame, os.path.join(folder, "table"))
            rows = _rows_below(folder)
    if rows != stage.rows:
        raise AssertionError(f"{side} wrote {rows} rows of {stage.rows}")


def audit_table(stage: Stage, side: str) -> None:
    """The table is made once, before anything counts."""
    from flintmq.lake.audit.audit import audit
    from flintmq.lake.syncing.options import make_options

    options = make_options([stage.topic.name], to=_synced(stage), bootstrap_servers=stage.broker.bootstrap)
    for found in audit(stage.spark, options):
        if not found.is_good or found.compared != stage.rows:
            raise AssertionError(f"{found.compared} rows, {found.problems}")


def compact_files(stage: Stage, side: str) -> None:
    """Small files, made alike for both sides before anything counts, become one."""
    from flintmq.lake.compact.compact import compact
    from flintmq.lake.tables.factory import open_with_store

    with _folder(stage) as folder:
        if side == OURS:
            shutil.copytree(_small_table(stage), os.path.join(folder, "small"))
            opened = open_with_store(folder, "small", "parquet")
            compact(stage.spark, opened.table, opened.store)
            state = opened.table.state()
            assert state is not None
            rows = sum(one.rows for one in opened.table.files(state))
        else:
            whole = stage.spark.read.parquet(os.path.join(_small_table(stage), "data"))
            _write(whole.coalesce(2), os.path.join(folder, "table"))
            rows = _rows_below(folder)
    if rows != SMALL_FILES * SMALL_ROWS:
        raise AssertionError(f"{side} has {rows} rows of {SMALL_FILES * SMALL_ROWS}")


WORKLOADS: Final = (
    Workload("lake-parquet", "a topic into a Parquet table", 0.3, to_parquet),
    Workload("lake-iceberg", "a topic into an Iceberg table; Spark writes Parquet", 0.3, to_iceberg),
    Workload("lake-delta", "a topic into a Delta table; Spark writes Parquet", 0.3, to_delta),
    Workload("lake-compact", f"{SMALL_FILES} files of {SMALL_ROWS} rows merged", 1.0, compact_files),
    Workload(
        "lake-audit",
        "a topic and its Parquet table held against each other",
        AUDIT_ROWS_PER_CPU_S,
        audit_table,
        is_rate=True,
    ),
)


def _write(frame: DataFrame, to: str) -> None:
    writer = frame.write.option("compression", "zstd").option("compression.codec.zstd.level", ZSTD_LEVEL)
    for name in _BINARY:
        # As ours: a dictionary of what seldom repeats is work for nothing.
        writer = writer.option(f"parquet.enable.dictionary#{name}", "false")
    writer.option("parquet.compression.codec.zstd.level", ZSTD_LEVEL).parquet(to)


def _rows_below(folder: str) -> int:
    return sum(
        pq.read_metadata(os.path.join(place, name)).num_rows
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".parquet")
    )


def _synced(stage: Stage) -> str:
    from flintmq.lake import sync

    def make(folder: str) -> None:
        sync(
            stage.spark,
            stage.topic.name,
            to=folder,
            bootstrap_servers=stage.broker.bootstrap,
            group="bench-audit",
        )

    return stage.made("audit", make)


def _small_table(stage: Stage) -> str:
    from flintmq.arrow.codec.decode import COLUMNS, schema_of
    from flintmq.lake.syncing.range_writer import FileLayout, footer_of, parquet_writer
    from flintmq.lake.tables.data_file import DataFile, FileName, data_path
    from flintmq.lake.tables.factory import open_with_store
    from flintmq.lake.tables.table import TableChange, TopicProgress

    topic_id = bytes(range(16)).hex()

    def make(folder: str) -> None:
        opened = open_with_store(os.path.dirname(folder), os.path.basename(folder), "parquet")
        state = opened.table.create(schema_of(COLUMNS))
        layout = FileLayout(store=opened.store, schema=state.schema)
        files = []
        for number in range(SMALL_FILES):
            start = number * SMALL_ROWS
            rows = _rows(start, layout.schema)
            name = FileName(
                topic_id=topic_id,
                partition=0,
                start_offset=start,
                end_offset=start + SMALL_ROWS,
                digest="0" * 16,
            )
            metadata: list[pq.FileMetaData] = []
            with opened.store.draft() as draft:
                with parquet_writer(draft, layout, metadata) as writer:
                    writer.write_table(rows)
                size = draft.tell()
                opened.store.publish(draft, data_path(name))
            files.append(
                DataFile(
                    path=data_path(name),
                    size=size,
                    rows=SMALL_ROWS,
                    topic="small",
                    partition=0,
                    start_offset=start,
                    end_offset=start + SMALL_ROWS,
                    footer=footer_of(metadata[0]),
                )
            )
        progress = {"small": TopicProgress(topic_id, {0: SMALL_FILES * SMALL_ROWS})}
        opened.table.commit(TableChange(base=state, added=files, progress=progress))

    return stage.made("small", make)


def _rows(start: int, schema: pa.Schema) -> pa.Table:
    offsets = range(start, start + SMALL_ROWS)
    columns = {
        "key": pa.array([f"key-{one % 997}".encode() for one in offsets]),
        "value": pa.array([f"{one:0100d}".encode() for one in offsets]),
        "topic": pa.array(["small"] * SMALL_ROWS),
        "partition": pa.array([0] * SMALL_ROWS, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_700_000_000_000_000 + one for one in offsets], pa.int64()),
        "timestampType": pa.array([0] * SMALL_ROWS, pa.int32()),
        "headers": pa.nulls(SMALL_ROWS, schema.field("headers").type),
    }
    return pa.table([columns[one.name].cast(one.type) for one in schema], schema=schema)


@contextmanager
def _folder(stage: Stage) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="table-", dir=stage.folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
