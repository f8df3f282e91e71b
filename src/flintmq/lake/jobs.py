"""Spark's jobs for the lake: numbers mapped in the workers, followed while they run, stopped when nobody wants them.

    with Jobs(spark) as jobs:
        table = jobs.run(count, work, "result binary", tell=…, check=…)

Works on a session of this process and over Spark Connect: `work` maps a range of numbers, one task each. Invariant:
a job does not outlive the call that asked for it, however that ends. What fails is raised as Spark says it; whether
to try again is the caller's to know. This module must not know tables or files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_EVERY_S: Final = 0.2
_STOP_S: Final = 30.0
_SAID_MAX: Final = 2000

ATTEMPTS_MAX: Final = 3
"""At one job: a worker that died may be replaced."""

Tell = Callable[[int, int], None]
"""How many tasks are done, of how many."""
Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Jobs:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        # One thread for all jobs: Spark keeps what it knows of each thread for ever.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lake-job")

    def __enter__(self) -> Jobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def run(
        self,
        count: int,
        work: Work,
        schema: str,
        *,
        tell: Tell = lambda done, total: None,
        check: Callable[[], None] = lambda: None,
    ) -> pa.Table:
        """What the tasks gave, in any order. `check` is called now and then; what it raises ends the job."""
        tag = f"flintmq-lake-{uuid.uuid4().hex}"
        following = _Following(self._spark, tag, count)
        job: Future[pa.Table] = self._thread.submit(self._collect, count, work, schema, tag)
        try:
            while True:
                wait((job,), timeout=_LOOK_EVERY_S)
                if job.done():
                    tell(count, count)
                    return job.result()
                check()
                tell(following.done(), count)
        finally:
            following.close()
            if not job.done():
                self._spark.interruptTag(tag)
                wait((job,), timeout=_STOP_S)

    def _collect(self, count: int, work: Work, schema: str, tag: str) -> pa.Table:
        spark = self._spark
        spark.addTag(tag)
        if (context := _context(spark)) is not None:
            context.setJobGroup(tag, self._name, interruptOnCancel=True)
        try:
            return spark.range(0, count, 1, count).mapInArrow(cast(Any, work), schema).toArrow()
        finally:
            spark.removeTag(tag)


class _Following:
    """How many tasks of a job are done."""

    def __init__(self, spark: SparkSession, tag: str, total: int) -> None:
        self._spark = spark
        self._tag = tag
        self._total = total
        self._told = 0
        self._tracker = None if (context := _context(spark)) is None else context.statusTracker()
        self._handler = cast(Any, self._hear)
        if self._tracker is None:
            spark.registerProgressHandler(self._handler)

    def _hear(self, stages: Any, *_: object, **__: object) -> None:
        self._told = sum(stage.num_completed_tasks for stage in stages or ())

    def done(self) -> int:
        if self._tracker is not None:
            jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._tag)]
            stages = [self._tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            self._told = sum(stage.numCompletedTasks for stage in stages if stage)
        return min(self._told, self._total)

    def close(self) -> None:
        if self._tracker is None:
            self._spark.removeProgressHandler(self._handler)


def _context(spark: SparkSession) -> Any:
    """None over Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    return spark.sparkContext


def said(error: Exception) -> str:
    """The end of it: what a worker said stands last."""
    text = str(error).strip()
    return text if len(text) <= _SAID_MAX else f"…{text[-_SAID_MAX:]}"
