"""Pieces written by Spark's workers: scheduled as one job, followed while it runs, stopped when asked.

    with PieceRunner(spark) as runner:
        for result in runner.run(work, tell=…, is_stopped=…): …

Works on a session of this process and over Spark Connect: a range of numbers is mapped in the workers, and each
number is a piece. Only what is said of the files comes back. Invariant: what a worker finds wrong with the data comes
back as the piece's error and costs no other piece; a worker that dies costs another attempt at the job, which finds
the files that are made. This module must not know tables.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa

from flintmq.client.failures import ClientError
from flintmq.errors import FlintError, RequestError
from flintmq.formats.decoder import NewSchemas
from flintmq.formats.registry import RegistryError
from flintmq.lake.planning import SyncError
from flintmq.lake.store import StoreError
from flintmq.lake.writing import Target, Written, write_piece
from flintmq.spark.losses import DataLoss
from flintmq.spark.segments import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 3
_LOOK_EVERY_S: Final = 0.2
_STOP_S: Final = 30.0
_SCHEMA: Final = "result binary"
_SAID_MAX: Final = 2000

Tell = Callable[[int, int], None]
"""How many pieces are done, of how many."""


PASSING: Final = (StoreError, ClientError, RequestError, RegistryError)
"""Failures that another sync, later, may not meet."""


class Stopped(FlintError):
    """Somebody asked for it; nothing was committed by what was under way."""


@dataclass(frozen=True, slots=True)
class Work:
    task: Task
    target: int
    """Which of the targets it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    piece: int
    """The number of the work."""
    written: Written | None = None
    error: str = ""
    """What was wrong with the data; empty if nothing was."""
    may_pass: bool = False
    """The store, the broker or the registry is away: another time it may work."""
    is_lost: bool = False
    """Records are gone that were there when it was planned."""
    new_schemas: tuple[int, ...] = ()
    """Ids of schemas whose columns the table does not have."""


class PieceRunner:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # One thread for all jobs: Spark keeps what it knows of each thread for ever.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lake-job")

    def __enter__(self) -> PieceRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def run(
        self,
        work: Sequence[Work],
        targets: Sequence[Target],
        *,
        tell: Tell = lambda done, total: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Result]:
        """One for each piece, in the order of the work."""
        if not work:
            return []
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                return self._run(work, targets, tell, is_stopped)
            except FlintError:
                raise
            except Exception as error:
                # Of Spark's, which have no base in common over both kinds of sessions.
                if attempt == _ATTEMPTS_MAX:
                    raise SyncError(f"Spark could not run the sync: {_said(error)}") from error
                logger.warning("Spark failed, and the sync is tried again: %s", _said(error))
        raise AssertionError("unreachable")

    def _run(
        self, work: Sequence[Work], targets: Sequence[Target], tell: Tell, is_stopped: Callable[[], bool]
    ) -> list[Result]:
        tag = f"flintmq-lake-{uuid.uuid4().hex}"
        following = _Following(self._spark, tag, len(work))
        job: Future[list[Result]] = self._thread.submit(self._collect, work, targets, tag)
        try:
            while True:
                wait((job,), timeout=_LOOK_EVERY_S)
                if job.done():
                    tell(len(work), len(work))
                    return job.result()
                if is_stopped():
                    raise Stopped(
                        "stopped while files were being written; the next sync takes those that are done"
                    )
                tell(following.done(), len(work))
        finally:
            following.close()
            if not job.done():
                self._spark.interruptTag(tag)
                # Whatever comes of it: a job must not outlive the one that asked for it.
                wait((job,), timeout=_STOP_S)

    def _collect(self, work: Sequence[Work], targets: Sequence[Target], tag: str) -> list[Result]:
        spark = self._spark
        spark.addTag(tag)
        if (context := _context(spark)) is not None:
            context.setJobGroup(tag, "flintmq lake sync", interruptOnCancel=True)
        try:
            frame = spark.range(0, len(work), 1, len(work)).mapInArrow(_writer(work, targets), _SCHEMA)
            column = frame.toArrow().column(0)
        finally:
            spark.removeTag(tag)
        results = sorted(
            (msgspec.msgpack.decode(one.as_buffer(), type=Result) for one in column),
            key=lambda one: one.piece,
        )
        if [one.piece for one in results] != list(range(len(work))):
            raise SyncError(f"Spark gave {len(results)} results for {len(work)} pieces")
        return results


def _writer(
    work: Sequence[Work], targets: Sequence[Target]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in the workers."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = run_piece(number, work[number].task, targets[work[number].target])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([msgspec.msgpack.encode(result)], pa.binary())], names=["result"]
                )

    return write


def run_piece(number: int, task: Task, target: Target) -> Result:
    try:
        return Result(piece=number, written=write_piece(task, target))
    except NewSchemas as error:
        return Result(piece=number, error=str(error), new_schemas=tuple(sorted(error.ids)))
    except FlintError as error:
        return Result(
            piece=number,
            error=str(error),
            may_pass=isinstance(error, PASSING),
            is_lost=isinstance(error, DataLoss),
        )


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


def _said(error: Exception) -> str:
    """The end of it: what a worker said stands last."""
    text = str(error).strip()
    return text if len(text) <= _SAID_MAX else f"…{text[-_SAID_MAX:]}"
