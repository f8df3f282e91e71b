"""A raw table and the table of its latest rows, with a model of what is to be in there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flintmq.arrow.codec.decode import COLUMNS, schema_of
from flintmq.lake.latest.latest import SUFFIX, LatestReport, latest
from flintmq.lake.tables.table import Format
from support.lake.data_files import DAY, TOPIC
from support.lake.table_location import TableLocation, next_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = tuple[bytes | None, bytes | None]
RAW = schema_of(COLUMNS)


class Pair:
    def __init__(self, spark: SparkSession, root: Path | str, format: Format, **options: Any) -> None:
        """`options` are those of a place."""
        self._spark = spark
        self.source = TableLocation(root, format, **options)
        self.target = TableLocation(root, format, TOPIC + SUFFIX, **options)
        if self.source.table.state() is None:
            self.source.table.create(RAW)
        self.model: dict[tuple[int, bytes], tuple[int, bytes]] = {}

    def add(self, records: list[Record], *, partition: int = 0) -> None:
        state = self.source.state()
        at = next_offset(state, partition)
        for offset, (key, value) in enumerate(records, at):
            if key is not None:
                self.model.pop((partition, key), None)
                if value is not None:
                    self.model[partition, key] = (offset, value)
        rows = raw_rows(records, at, partition)
        file = self.source.write(state, rows, at, at + len(records), partition=partition)
        self.source.add(state, [file], partition=partition, at=at + len(records))

    def refresh(self, *, bucket_bytes: int = 1 << 25) -> LatestReport:
        source, target = self.source, self.target
        return latest(
            self._spark, source.table, source.store, target.table, target.store, bucket_bytes=bucket_bytes
        )

    def check(self) -> None:
        rows = self.target.rows().to_pylist()
        found = {(row["partition"], row["key"]): (row["offset"], row["value"]) for row in rows}
        assert len(found) == len(rows), "a key is there once"
        assert found == self.model


def raw_rows(records: list[Record], at: int, partition: int) -> pa.Table:
    count = len(records)
    return pa.table(
        {
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "topic": pa.array([TOPIC] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(at, at + count), pa.int64()),
            "timestamp": pa.array([DAY] * count, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.nulls(count, RAW.field("headers").type),
        }
    )
