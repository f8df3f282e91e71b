"""Runs a function on many items in Spark's workers, without RDDs, so that it works over Spark Connect too.

    results = map_in_workers(spark, items, function, Result)

    with FanOut(spark, "flintmq lake sync") as fan_out:      for several jobs, progress and cancellation
        fan_out.map(items, function, Result, work_bytes=…, on_progress=…, check=…)

`function` runs in a worker and must be picklable; its result travels as msgpack. Invariant: one result for each item,
in the order of the items, or TableError; a job does not outlive the call that started it. A FlintError of a worker
is raised here with its message. A worker that dies costs another attempt at all items: `function` must find what it
has made before, and take it.

`spark` may be a LazySession: it is opened by the first job. If it is optional, a job of few items and few bytes is
done in this process instead, by the same function. This module must not know tables or files.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec
import pyarrow as pa

from flintmq.arrow.worker_gc import freeze_imports
from flintmq.errors import FlintError
from flintmq.lake.in_process import run_in_process
from flintmq.lake.limits import IN_PROCESS_LIMITS, InProcessLimits
from flintmq.lake.tables.table import TableError
from flintmq.spark.lazy_session import LazySession, session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

OnProgress = Callable[[int, int], None]
"""Is called with the number of finished tasks and the number of all tasks."""

_POLL_S: Final = 0.2
_ATTEMPTS_MAX: Final = 3
_CANCEL_S: Final = 30.0
_ERROR_CHARS_MAX: Final = 2000
_SCHEMA: Final = "item long, result binary, error string"


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


def map_in_workers(
    spark: SparkSession | LazySession,
    items: Sequence[Item],
    function: Callable[[Item], Result],
    result_type: type[Result],
    *,
    work_bytes: int | None = None,
    on_progress: OnProgress = no_progress,
) -> list[Result]:
    """Return the results of one job."""
    with FanOut(spark, "flintmq lake") as fan_out:
        return fan_out.map(items, function, result_type, work_bytes=work_bytes, on_progress=on_progress)


class FanOut:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        name: str,
        *,
        poll_s: float = _POLL_S,
        attempts_max: int = _ATTEMPTS_MAX,
        in_process: InProcessLimits = IN_PROCESS_LIMITS,
    ) -> None:
        self._spark = spark
        self._name = name
        self._poll_s = poll_s
        self._attempts_max = attempts_max
        self._in_process = in_process
        # One thread for all jobs: Spark never frees what it keeps for each thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lake-job")

    def __enter__(self) -> FanOut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def map(
        self,
        items: Sequence[Item],
        function: Callable[[Item], Result],
        result_type: type[Result],
        *,
        work_bytes: int | None = None,
        on_progress: OnProgress = no_progress,
        check: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Return a result for each item. `check` is called again and again; a FlintError of it cancels the job.

        `work_bytes` is about how much there is to read, None if that is not known.
        """
        if not items:
            return []
        if self._is_done_in_process(len(items), work_bytes):
            try:
                return self._map_in_process(items, function, result_type, on_progress, check)
            except FlintError:
                raise
            except Exception as error:
                logger.warning("the work failed in this process and is given to Spark: %s", _shortened(error))
        table = self._run(len(items), _MapTask(tuple(items), function), on_progress, check)
        results: dict[int, Result] = {}
        for number, result, failure in zip(*(table.column(index) for index in range(3)), strict=True):
            if failure.is_valid:
                raise TableError(failure.as_py())
            results[number.as_py()] = msgspec.msgpack.decode(result.as_buffer(), type=result_type)
        if len(results) != len(items):
            raise TableError(
                f"Spark returned {len(results)} results for {len(items)} tasks; look at its log."
            )
        return [results[number] for number in range(len(items))]

    def _is_done_in_process(self, count: int, work_bytes: int | None) -> bool:
        is_optional = isinstance(self._spark, LazySession) and self._spark.is_optional
        return is_optional and self._in_process.allow(count, work_bytes)

    def _map_in_process(
        self,
        items: Sequence[Item],
        function: Callable[[Item], Result],
        result_type: type[Result],
        on_progress: OnProgress,
        check: Callable[[], None],
    ) -> list[Result]:
        def encoded(item: Item) -> bytes:
            # As a worker does it, so that a result is the same wherever it comes from.
            try:
                return msgspec.msgpack.encode(function(item))
            except FlintError as error:
                raise TableError(str(error)) from error

        results = run_in_process(items, encoded, on_progress=on_progress, check=check, poll_s=self._poll_s)
        return [msgspec.msgpack.decode(one, type=result_type) for one in results]

    def _run(self, count: int, task: Any, on_progress: OnProgress, check: Callable[[], None]) -> pa.Table:
        # A session that cannot be opened is no failure of the job.
        spark = session_of(self._spark)
        for attempt in range(1, self._attempts_max + 1):
            try:
                return self._run_once(spark, count, task, on_progress, check)
            except FlintError:
                raise
            except Exception as error:
                # Spark's exceptions have no common base over both kinds of sessions.
                if isinstance(self._spark, LazySession) and (gone := self._spark.why_gone()) is not None:
                    raise TableError(gone) from error
                text = _shortened(error)
                if attempt == self._attempts_max:
                    raise TableError(f"Spark could not do the work: {text}") from error
                logger.warning("Spark failed, and the job is tried again: %s", text)
        raise AssertionError("the last attempt returns or raises")

    def _run_once(
        self,
        spark: SparkSession,
        count: int,
        task: Any,
        on_progress: OnProgress,
        check: Callable[[], None],
    ) -> pa.Table:
        tag = f"flintmq-lake-{uuid.uuid4().hex}"
        finished = _FinishedTasks(spark, tag, count)
        job: Future[pa.Table] = self._thread.submit(self._collect, spark, count, task, tag)
        try:
            while True:
                wait((job,), timeout=self._poll_s)
                if job.done():
                    on_progress(count, count)
                    return job.result()
                check()
                on_progress(finished.count(), count)
        finally:
            finished.close()
            if not job.done():
                spark.interruptTag(tag)
                wait((job,), timeout=_CANCEL_S)

    def _collect(self, spark: SparkSession, count: int, task: Any, tag: str) -> pa.Table:
        spark.addTag(tag)
        if (context := _context(spark)) is not None:
            context.setJobGroup(tag, self._name, interruptOnCancel=True)
        try:
            return spark.range(0, count, 1, count).mapInArrow(task, _SCHEMA).toArrow()
        finally:
            spark.removeTag(tag)


@dataclass(frozen=True)
class _MapTask(Generic[Item, Result]):
    """Runs in the workers. Can be pickled."""

    items: tuple[Item, ...]
    function: Callable[[Item], Result]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result, failure = None, None
                try:
                    result = msgspec.msgpack.encode(self.function(self.items[number]))
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


class _FinishedTasks:
    """Counts the finished tasks of a job."""

    def __init__(self, spark: SparkSession, tag: str, total: int) -> None:
        self._spark = spark
        self._tag = tag
        self._total = total
        self._count = 0
        self._tracker = None if (context := _context(spark)) is None else context.statusTracker()
        self._handler = cast(Any, self._on_stages)
        if self._tracker is None:
            spark.registerProgressHandler(self._handler)

    def _on_stages(self, stages: Any, *_: object, **__: object) -> None:
        self._count = sum(stage.num_completed_tasks for stage in stages or ())

    def count(self) -> int:
        if self._tracker is not None:
            jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._tag)]
            stages = [self._tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            self._count = sum(stage.numCompletedTasks for stage in stages if stage)
        return min(self._count, self._total)

    def close(self) -> None:
        if self._tracker is None:
            self._spark.removeProgressHandler(self._handler)


def _context(spark: SparkSession) -> Any:
    """Return the Spark context, or None over Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    return spark.sparkContext


def _shortened(error: Exception) -> str:
    """Return the end of the message, where a worker's own message is."""
    text = str(error).strip()
    return text if len(text) <= _ERROR_CHARS_MAX else f"…{text[-_ERROR_CHARS_MAX:]}"
