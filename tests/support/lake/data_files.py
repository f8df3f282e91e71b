"""Data files as workers write them, for tests of tables: a file of rows and what is said of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.store.store import Store
from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues, data_path

TOPIC = "orders"
TOPIC_ID = "0123456789abcdef0123456789abcdef"
DAY = datetime(2026, 11, 15, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("amount", pa.int32()),
        ("city", pa.string()),
    ]
)


def rows_of(offsets: Sequence[int], *, partition: int = 0, city: str | None = "Oslo") -> pa.Table:
    return pa.table(
        {
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(
                [DAY + timedelta(seconds=one) for one in offsets], pa.timestamp("us", "UTC")
            ),
            "key": pa.array([b"k%d" % (one % 7) for one in offsets], pa.binary()),
            "value": pa.array([b"v%d" % one for one in offsets], pa.binary()),
            "amount": pa.array([one * 2 for one in offsets], pa.int32()),
            "city": pa.array([city] * len(offsets), pa.string()),
        }
    )


def write_file(
    store: Store,
    schema: pa.Schema,
    rows: pa.Table,
    *,
    start: int,
    end: int,
    partition: int = 0,
    values: PartitionValues = (),
    digest: str = "00112233445566aa",
) -> DataFile:
    """Published below the table, as a worker would."""
    name = FileName(topic_id=TOPIC_ID, partition=partition, start_offset=start, end_offset=end, digest=digest)
    path = data_path(name, values)
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    table = pa.table(columns, schema=schema)
    with store.draft() as draft:
        pq.write_table(
            table, draft, compression="zstd", write_statistics=["partition", "offset", "timestamp"]
        )
        draft.flush()
        size = draft.tell()
        store.publish(draft, path)
    with store.open(path) as file:
        metadata = pq.read_metadata(file)
    footer = io.BytesIO()
    metadata.write_metadata_file(footer)
    return DataFile(
        path=path,
        size=size,
        rows=len(rows),
        topic=TOPIC,
        partition=partition,
        start_offset=start,
        end_offset=end,
        partition_values=values,
        footer=footer.getvalue(),
    )
