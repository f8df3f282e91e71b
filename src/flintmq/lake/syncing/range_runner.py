"""Writes the pieces of a sync in Spark's workers: one job, with progress, cancelled when the sync is stopped.

    with PieceRunner(spark) as runner:
        for result in runner.run(work, targets, on_progress=…, is_stopped=…): …

Only descriptions of the files come back. Invariant: what a worker finds wrong with the data comes back as the
piece's error and costs no other piece; a worker that dies costs another attempt at the job, which finds the files
that are made. This module must not know tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.decoder import NewSchemas
from flintmq.arrow.formats.schema_registry import RegistryError
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.segment_planner import Task
from flintmq.client.errors import ClientError
from flintmq.errors import FlintError, RequestError
from flintmq.lake.fan_out import FanOut, OnProgress, no_progress
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.range_writer import NewColumns, RangeTarget, WrittenRange, write_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

PASSING: Final = (StoreError, ClientError, RequestError, RegistryError)
"""Failures that a later sync may not meet."""


class SyncStopped(FlintError):
    """The sync was asked to stop; nothing under way was committed."""


@dataclass(frozen=True, slots=True)
class RangeWork:
    task: Task
    target: int
    """Index of its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    written: WrittenRange | None = None
    error: str = ""
    """What was wrong with the data; empty if nothing was."""
    may_pass: bool = False
    """The store, the broker or the registry is away: another time it may work."""
    is_lost: bool = False
    """Records are gone that were there when it was planned."""
    new_schemas: tuple[int, ...] = ()
    """Ids of schemas whose columns the table does not have."""
    new_columns: str = ""
    """Columns for fields that have none, as DDL; empty if there are none, or if none are to be added."""


class RangeRunner:
    def __init__(self, spark: SparkSession | LazySession) -> None:
        self._fan_out = FanOut(spark, "flintmq lake sync")

    def __enter__(self) -> RangeRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._fan_out.__exit__(kind, error, traceback)

    def run(
        self,
        work: Sequence[RangeWork],
        targets: Sequence[RangeTarget],
        *,
        work_bytes: int | None = None,
        on_progress: OnProgress = no_progress,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[RangeResult]:
        """Return one result for each piece, in the order of the work."""

        def check() -> None:
            if is_stopped():
                raise SyncStopped(
                    "stopped while files were being written; the next sync takes those that are done"
                )

        items = [(one.task, targets[one.target]) for one in work]
        return self._fan_out.map(
            items, _run_piece, RangeResult, work_bytes=work_bytes, on_progress=on_progress, check=check
        )


def _run_piece(item: tuple[Task, RangeTarget]) -> RangeResult:
    """Write one piece, in a worker."""
    try:
        return RangeResult(written=write_range(*item))
    except NewSchemas as error:
        return RangeResult(error=str(error), new_schemas=tuple(sorted(error.ids)))
    except NewColumns as error:
        return RangeResult(error=str(error), new_columns=ddl.write(error.columns))
    except FlintError as error:
        return RangeResult(
            error=str(error), may_pass=isinstance(error, PASSING), is_lost=isinstance(error, DataLoss)
        )
