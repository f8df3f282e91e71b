"""Work done by Spark's workers, one item each, without RDDs, so that it runs over Spark Connect too.

    for result in in_workers(spark, items, do, Result): …

`do` runs in a worker and must be a function that can be pickled; what it returns is sent back as msgpack. Invariant:
a result for each item, in the order of the items. What is wrong with the data is raised here in the worker's words.
A worker that dies costs another attempt at everything: `do` must find what it has made already, and take it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
import pyarrow as pa

from flintmq.arrow.worker_gc import freeze_imports
from flintmq.errors import FlintError
from flintmq.lake.jobs import ATTEMPTS_MAX, Jobs, Tell, said
from flintmq.lake.tables.table import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_SCHEMA: Final = "item long, result binary, error string"


def in_workers(
    spark: SparkSession,
    items: Sequence[Item],
    do: Callable[[Item], Result],
    kind: type[Result],
    *,
    tell: Tell = lambda done, total: None,
) -> list[Result]:
    """`tell` hears how many are done, of how many."""
    if not items:
        return []
    with Jobs(spark, "flintmq lake") as jobs:
        found = _done(jobs, len(items), _Work(tuple(items), do), tell)
    results: dict[int, Result] = {}
    for number, result, failure in zip(*(found.column(index) for index in range(3)), strict=True):
        if failure.is_valid:
            raise TableError(failure.as_py())
        results[number.as_py()] = msgspec.msgpack.decode(result.as_buffer(), type=kind)
    if len(results) != len(items):
        raise TableError(
            f"Spark gave {len(results)} results for {len(items)} pieces of work; look at its log."
        )
    return [results[number] for number in range(len(items))]


def _done(jobs: Jobs, count: int, work: Any, tell: Tell) -> pa.Table:
    failure: Exception | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            return jobs.run(count, work, _SCHEMA, tell=tell)
        except Exception as error:  # of Spark's, which have no base in common over both kinds of sessions
            failure = error
            logger.warning("Spark failed: %s", said(error))
    assert failure is not None
    raise TableError(f"Spark could not do the work: {said(failure)}") from failure


@dataclass(frozen=True)
class _Work(Generic[Item, Result]):
    items: tuple[Item, ...]
    do: Callable[[Item], Result]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result, failure = None, None
                try:
                    result = msgspec.msgpack.encode(self.do(self.items[number]))
                except FlintError as error:
                    failure = str(error)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number], pa.int64()),
                        pa.array([result], pa.binary()),
                        pa.array([failure], pa.string()),
                    ],
                    names=["item", "result", "error"],
                )
