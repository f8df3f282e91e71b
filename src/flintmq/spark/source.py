"""The data sources `flintmq` and `flintmq_segments`: what Spark asks of them, passed on to the modules that know.

Spark makes one of these in processes of its own, pickles it, and asks it for readers: nothing here may hold a
connection. The half that writes is imported only when something is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.codec.decode import COLUMNS, schema_of
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.narrowing import EVERYTHING
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions, parse
from flintmq.arrow.scan.planner import Planner
from flintmq.arrow.scan.segment_planner import FileTask
from flintmq.arrow.scan.task_reader import read_task
from flintmq.errors import ConfigurationError
from flintmq.spark.filters import narrow

NAME: Final = "flintmq"
NAME_OF_SEGMENTS: Final = "flintmq_segments"


class FlintMQ(DataSource):
    limits = ScanLimits()

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_for(self._parsed().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._parsed().for_batch(), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from flintmq.spark.stream import StreamReader

        return StreamReader(self._parsed().for_stream(), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from flintmq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from flintmq.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _parsed(self) -> SourceOptions:
        return replace(parse(self.options), limits=self.limits)


class FlintMQSegments(FlintMQ):
    """The same rows; segments come from the broker's files, and a worker that has them not says so."""

    @classmethod
    def name(cls) -> str:
        return NAME_OF_SEGMENTS

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise ConfigurationError(f"the format {NAME_OF_SEGMENTS} only reads; write with the format {NAME}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self.writer(schema, overwrite)

    def _parsed(self) -> SourceOptions:
        return super()._parsed().from_files()


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the workers; pickled between the two."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrowing = EVERYTHING
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def take_filters(self, filters: Iterable[Filter]) -> list[Filter]:
        """Returns those that Spark must evaluate."""
        self._narrowing, left = narrow(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        with client_of(self._options) as client:
            return [InputPartition(one) for one in Planner(client, self._options).batch(self._narrowing)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a task of None where there is nothing to read.
        if isinstance(partition.value, OffsetRange | FileTask):
            yield from read_task(partition.value, self._columns, self._options)


class _PushFilters:
    """`pushFilters` for a reader that works without it too.

    Spark refuses a reader that has the method while spark.sql.python.filterPushdown.enabled is false, as it is unless
    somebody sets it. Who only forgot to should read a little more, not get an error; so this does not look like
    a method to Spark's check, and is called all the same where filters are pushed.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


def schema_for(columns: Iterable[str]) -> StructType:
    return from_arrow_schema(schema_of(tuple(columns)))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema names, which may be the user's own: then it may leave some out, but change none."""
    known = {one.name: one.dataType for one in schema_for(COLUMNS).fields}
    wrong = [one.name for one in schema.fields if known.get(one.name) != one.dataType]
    if wrong or not schema.fields:
        right = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
        raise ConfigurationError(
            f"the schema cannot have {', '.join(wrong) or 'no column'}; it may have any of: {right}"
        )
    return tuple(schema.fieldNames())
