"""The sink `flintmq` as Spark sees it: writers of batch and streaming writes.

Spark makes a writer on the driver, sends it to the tasks, and makes or unpickles one again to commit; so a writer
holds options and nothing else. The query and batch of a streaming write come with the task, as local properties.
A batch write is at least once, unless it has a `writeId`: then it is written as one batch of a query of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from flintmq.arrow.write import write_task
from flintmq.arrow.write.exactly_once import WriteError, WriteResult
from flintmq.arrow.write.options import SinkOptions, parse_sink
from flintmq.arrow.write.write_task import WriteTask
from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
_ONLY_BATCH: Final = 0


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    written: WriteResult | None = None
    """None where nothing has to be committed."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    return BatchWriter(_checked(options, schema, overwrite, streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    return StreamWriter(_checked(options, schema, overwrite, streaming=True))


def _checked(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> SinkOptions:
    if overwrite:
        raise ConfigurationError(
            "a topic cannot be overwritten: write with mode append, or output mode append or update"
        )
    parsed = parse_sink(options, streaming=streaming)
    parsed.check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)
    return parsed


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if not query or not batch:
            raise WriteError(
                f"Spark does not say which query and batch this task is of ({QUERY_PROPERTY}, {BATCH_PROPERTY}); "
                "the sink writes micro-batches only, not with a continuous trigger"
            )
        return TaskDone(write_task.write_once(self._options, query, int(batch), _task(context), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        write_task.commit(self._options, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        write_task.abort(self._options, _written(messages))


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        task = _task(_context())
        if self._options.write_id is None:
            write_task.write_at_least_once(self._options, task, iterator)
            return TaskDone()
        query = f"write-{self._options.write_id}"
        return TaskDone(write_task.write_once(self._options, query, _ONLY_BATCH, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        write_task.commit(self._options, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        write_task.abort(self._options, _written(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise WriteError("rows are written by Spark's tasks only")
    return context


def _task(context: TaskContext) -> WriteTask:
    return WriteTask(context.partitionId(), context.attemptNumber())


def _written(messages: list[WriterCommitMessage | None]) -> list[WriteResult]:
    """Of the tasks that did not fail."""
    return [one.written for one in messages if isinstance(one, TaskDone) and one.written is not None]
