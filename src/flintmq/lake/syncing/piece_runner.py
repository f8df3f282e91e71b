"""Pieces written by Spark's workers: scheduled as one job, followed while it runs, stopped when asked.

    with PieceRunner(spark) as runner:
        for result in runner.run(work, targets, tell=…, is_stopped=…): …

Only what is said of the files comes back. Invariant: what a worker finds wrong with the data comes back as the
piece's error and costs no other piece; a worker that dies costs another attempt at the job, which finds the files
that are made. This module must not know tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from flintmq.arrow.formats.decoder import NewSchemas
from flintmq.arrow.formats.schema_registry import RegistryError
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.segment_planner import Task
from flintmq.client.errors import ClientError
from flintmq.errors import FlintError, RequestError
from flintmq.lake.jobs import ATTEMPTS_MAX, Jobs, Tell, said
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.piece_writer import PieceTarget, WrittenPiece, write_piece
from flintmq.lake.syncing.planner import SyncError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_SCHEMA: Final = "result binary"

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
    written: WrittenPiece | None = None
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
        self._jobs = Jobs(spark, "flintmq lake sync")

    def __enter__(self) -> PieceRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jobs.__exit__(kind, error, traceback)

    def run(
        self,
        work: Sequence[Work],
        targets: Sequence[PieceTarget],
        *,
        tell: Tell = lambda done, total: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[Result]:
        """One for each piece, in the order of the work."""

        def check() -> None:
            if is_stopped():
                raise Stopped(
                    "stopped while files were being written; the next sync takes those that are done"
                )

        if not work:
            return []
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                table = self._jobs.run(len(work), _writer(work, targets), _SCHEMA, tell=tell, check=check)
                return _results(table, len(work))
            except FlintError:
                raise
            except Exception as error:
                # Of Spark's, which have no base in common over both kinds of sessions.
                if attempt == ATTEMPTS_MAX:
                    raise SyncError(f"Spark could not run the sync: {said(error)}") from error
                logger.warning("Spark failed, and the sync is tried again: %s", said(error))
        raise AssertionError("unreachable")


def _results(table: pa.Table, count: int) -> list[Result]:
    results = sorted(
        (msgspec.msgpack.decode(one.as_buffer(), type=Result) for one in table.column(0)),
        key=lambda one: one.piece,
    )
    if [one.piece for one in results] != list(range(count)):
        raise SyncError(f"Spark gave {len(results)} results for {count} pieces")
    return results


def _writer(
    work: Sequence[Work], targets: Sequence[PieceTarget]
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


def run_piece(number: int, task: Task, target: PieceTarget) -> Result:
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
