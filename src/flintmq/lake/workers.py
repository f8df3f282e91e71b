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

from flintmq.errors import FlintError
from flintmq.lake.table import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 3
_SCHEMA: Final = "item long, result binary, error string"
_SAID_MAX: Final = 2000


def in_workers(
    spark: SparkSession, items: Sequence[Item], do: Callable[[Item], Result], kind: type[Result]
) -> list[Result]:
    if not items:
        return []
    found = _done(spark, len(items), _Work(tuple(items), do))
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


def _done(spark: SparkSession, count: int, work: Any) -> pa.Table:
    failure: Exception | None = None
    for _ in range(_ATTEMPTS_MAX):
        try:
            return spark.range(0, count, 1, count).mapInArrow(work, _SCHEMA).toArrow()
        except Exception as error:  # of Spark's, which have no base in common over both kinds of sessions
            failure = error
            logger.warning("Spark failed: %s", str(error).strip()[-_SAID_MAX:])
    raise TableError(f"Spark could not do the work: {str(failure).strip()[-_SAID_MAX:]}") from failure


@dataclass(frozen=True)
class _Work(Generic[Item, Result]):
    items: tuple[Item, ...]
    do: Callable[[Item], Result]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
