"""The data source `flintmq_decoded`: the source `flintmq` whose workers decode what they have read.

Values do not go to the JVM and back to be decoded: a task reads records, decodes them and gives Spark typed columns.
How is one option of its own, `shaping`, a pickled SourceDecoding; all others are those of `flintmq`. Only
pipelines use it.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions, parse
from flintmq.arrow.scan.segment_planner import FileTask
from flintmq.arrow.scan.task_reader import read_task
from flintmq.pipeline.sources.decoding import SourceDecoding
from flintmq.spark.source import BatchReader, FlintMQ
from flintmq.spark.stream import StreamReader

NAME: Final = "flintmq_decoded"
DECODING_OPTION: Final = "shaping"


def encode_decoding(decoding: Any) -> str:
    return base64.b64encode(pickle.dumps(decoding)).decode()


class FlintMQDecoded(FlintMQ):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(self._decoding().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return DecodingBatchReader(self._parsed().for_batch(), self._decoding())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DecodingStreamReader(self._parsed().for_stream(), self._decoding())

    def _parsed(self) -> SourceOptions:
        return parse({name: value for name, value in self.options.items() if name.lower() != DECODING_OPTION})

    def _decoding(self) -> SourceDecoding:
        found = pickle.loads(base64.b64decode(self.options[DECODING_OPTION]))  # nosec B301
        assert isinstance(found, SourceDecoding)
        return found


class DecodingBatchReader(BatchReader):
    def __init__(self, options: SourceOptions, decoding: SourceDecoding) -> None:
        super().__init__(options, decoding.columns)
        # Filters name the decoded columns, which the planner must not take for a record's own.
        del self.pushFilters
        self._decoding = decoding

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _decoded(partition.value, self._options, self._decoding)


class DecodingStreamReader(StreamReader):
    def __init__(self, options: SourceOptions, decoding: SourceDecoding) -> None:
        super().__init__(options, decoding.columns)
        self._decoding = decoding

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _decoded(partition.value, self._options, self._decoding)


def _decoded(task: object, options: SourceOptions, decoding: SourceDecoding) -> Iterator[pa.RecordBatch]:
    # Spark makes a task of None where there is nothing to read.
    if isinstance(task, OffsetRange | FileTask):
        wanted = task if isinstance(task, OffsetRange) else task.wanted
        batches = read_task(task, decoding.columns, options)
        yield from decoding.rows(wanted.topic, wanted.partition, batches)
