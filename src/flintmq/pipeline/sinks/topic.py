"""Batches of a stream as transactions of a topic, each once: what the sink `flintmq` does, from the run's process.

    frame.writeStream.foreachBatch(TopicSinkBatches(options, name))

Spark's own interface for sinks in Python starts a process for every commit and knows no mode but append. The work is
the same: tasks write and leave transactions open, the driver decides and commits (`arrow.write.exactly_once`).
Invariant: that module's: a batch is visible wholly or not at all, and once, whoever dies.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from flintmq.arrow.write import write_task
from flintmq.arrow.write.exactly_once import WriteResult
from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.write_task import WriteTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITTEN: Final = "written"


@dataclass(frozen=True)
class TopicSinkBatches:
    options: SinkOptions
    query: str
    """A name that no other query of the broker has."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        work: Any = _Writing(self.options, self.query, batch_id)
        pickled = batch.mapInArrow(work, f"{_WRITTEN} binary").toArrow().column(0)
        results = [_read(one.as_py()) for one in pickled]
        try:
            write_task.commit(self.options, results)
        except BaseException:
            write_task.abort(self.options, results)
            raise


@dataclass(frozen=True)
class _Writing:
    """One task, in a worker. Can be pickled."""

    options: SinkOptions
    query: str
    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = WriteTask(context.partitionId(), context.attemptNumber())
        written = write_task.write_once(self.options, self.query, self.batch, task, batches)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(written)], pa.binary())], names=[_WRITTEN])


def _read(data: bytes) -> WriteResult:
    found = pickle.loads(data)  # nosec B301
    assert isinstance(found, WriteResult)
    return found
