"""The life of data after it was written: retention, compaction and the scrub, by themselves and on demand (R3).

By themselves they run behind traffic: retention every `log.retention.check.interval.ms`, compaction of the dirtiest
log every `log.cleaner.backoff.ms`, the scrub at `flint.scrub.bytes.per.second`. On demand a task works on all
partitions of a topic and can be asked how far it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flintmq.effects import Clock, Executor
from flintmq.errors import ErrorCode, FlintError, LogOffline, RequestError
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.log_cleaner import CompactionResult, CompactionRunner, LogCleaner
from flintmq.partitions.maintenance.retention import retain
from flintmq.partitions.maintenance.scrub import Scrubber, verify_log
from flintmq.partitions.maintenance.table_retention import (
    UNKNOWN,
    TableOffset,
    TableOffsets,
    TableRetention,
)
from flintmq.partitions.partition import Partition
from flintmq.settings import BrokerConfig
from flintmq.storage.compaction.planning import next_log_to_clean
from flintmq.storage.corrupt_ranges import merge_ranges

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Bounds on tasks that are started on demand."""

    running_max: int = 20
    kept_max: int = 100
    """Tasks that can be described; one that is running is kept in any case."""
    partitions_kept_max: int = 100_000
    """Partitions of the tasks that are kept."""


class TaskAction(Enum):
    COMPACT = "compact"
    RETAIN = "retain"
    VERIFY = "verify"


class TaskState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class PartitionTask:
    """How far a task is with one partition. What the counts mean depends on the action."""

    index: int
    state: TaskState = TaskState.WAITING
    phase: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets: the first, and the one after the last."""
    error: str = ""


@dataclass(slots=True)
class MaintenanceTask:
    id: int
    topic: str
    action: TaskAction
    partitions: list[PartitionTask]
    over: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def is_over(self) -> bool:
        return self.over.is_set()


class MaintenanceScheduler:
    def __init__(
        self,
        partitions: LocalPartitions,
        compactions: CompactionRunner,
        *,
        clock: Clock,
        executor: Executor,
        config: Callable[[], BrokerConfig],
        limits: TaskLimits | None = None,
        table_offsets: Callable[[], Awaitable[TableOffsets | None]] | None = None,
    ) -> None:
        """`table_offsets` tells how far lake tables are: None while it is not known."""
        self._limits = limits or TaskLimits()
        self._partitions = partitions
        self._log_dir = partitions.log_dir
        self._clock = clock
        self._executor = executor
        self._config = config
        self.cleaner = LogCleaner(
            compactions, log_dir=self._log_dir, clock=clock, executor=executor, config=config
        )
        self._scrub = Scrubber(partitions, clock=clock, executor=executor, config=config)
        self.tables = TableRetention()
        self._table_offsets = table_offsets
        self._retained_ms = clock.now_ms()
        self._cleaned_ms = clock.now_ms()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[int, MaintenanceTask] = {}
        # Tasks end with the process: whoever asks the next one for a task of this one must not be told of another.
        self._last_id = clock.now_ms()
        self._verifying = asyncio.Lock()

    # ---- by itself

    def tick(self) -> None:
        """Begin what is due. Called once a second, and whenever the clock was moved."""
        now_ms, config = self._clock.now_ms(), self._config()
        # A clock that was set back must not stop maintenance until it has caught up.
        if not 0 <= now_ms - self._retained_ms < config.log_retention_check_interval_ms:
            self._retained_ms = now_ms
            self._begin("retention", self._retain_all)
        if config.log_cleaner_enable and not 0 <= now_ms - self._cleaned_ms < config.log_cleaner_backoff_ms:
            self._cleaned_ms = now_ms
            self._begin("compaction", self._compact_dirtiest)
        if config.flint_scrub_bytes_per_second:
            self._begin("scrub", self._scrub.step)

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Unless it still runs: whatever is due again then waits for the next time."""
        if name in self._running:
            return
        task = self._running[name] = asyncio.ensure_future(self._guarded(name, work))
        task.add_done_callback(lambda _: self._running.pop(name, None))

    async def _guarded(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (FlintError, OSError) as error:
            logger.error("%s: %s", name, error)
        except Exception:
            logger.exception("%s failed", name)

    async def _retain_all(self) -> None:
        partitions = list(self._partitions)
        await self._apply_retention(partitions)
        self.tables.keep_only(partitions)

    async def _apply_retention(self, partitions: Sequence[Partition]) -> None:
        offsets = {} if self._table_offsets is None else await self._table_offsets()

        def needed(partition: Partition) -> TableOffset | None:
            return UNKNOWN if offsets is None else offsets.get((partition.topic, partition.index))

        await retain(
            partitions,
            log_dir=self._log_dir,
            clock=self._clock,
            executor=self._executor,
            tables=self.tables,
            needed=needed,
        )

    async def _compact_dirtiest(self) -> None:
        """As long as there is one that is worth it."""
        failed: set[Partition] = set()
        while True:
            by_log = {
                partition.log: partition
                for partition in self._partitions
                if not self.cleaner.gave_up(partition) and partition not in failed
            }
            log = next_log_to_clean(by_log, self._clock.now_ms())
            if log is None:
                return
            try:
                await self.cleaner.compact(by_log[log])
            except (FlintError, OSError) as error:
                logger.warning("%s is not compacted: %s", log.name, error)
                failed.add(by_log[log])

    # ---- on demand

    def start(self, action: TaskAction, topic: str, partitions: Sequence[Partition]) -> MaintenanceTask:
        running_max = self._limits.running_max
        if sum(not task.is_over for task in self._tasks.values()) >= running_max:
            raise RequestError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{running_max} tasks are under way; try again later."
            )
        self._last_id += 1
        task = MaintenanceTask(self._last_id, topic, action, [PartitionTask(one.index) for one in partitions])
        self._tasks[task.id] = task
        self._forget_old()
        self._begin(f"task {task.id}", lambda: self._carry_out(task, list(partitions)))
        return task

    def find(self, task_id: int) -> MaintenanceTask | None:
        return self._tasks.get(task_id)

    def _forget_old(self) -> None:
        kept = sum(len(task.partitions) for task in self._tasks.values())
        for old in list(self._tasks.values()):
            if len(self._tasks) <= self._limits.kept_max and kept <= self._limits.partitions_kept_max:
                return
            if old.is_over:
                del self._tasks[old.id]
                kept -= len(old.partitions)

    async def _carry_out(self, task: MaintenanceTask, partitions: list[Partition]) -> None:
        work = {
            TaskAction.COMPACT: self._compact,
            TaskAction.RETAIN: self._retain,
            TaskAction.VERIFY: self._verify,
        }
        try:
            for partition, part in zip(partitions, task.partitions, strict=True):
                part.state = TaskState.RUNNING
                try:
                    if partition.log.offline is not None:
                        raise LogOffline(partition.log.offline)
                    await work[task.action](partition, part)
                    part.state = TaskState.DONE
                except (FlintError, OSError) as error:
                    part.state, part.error = TaskState.FAILED, str(error)
        finally:
            for part in task.partitions:
                if part.state in (TaskState.WAITING, TaskState.RUNNING):
                    part.state, part.error = TaskState.FAILED, "given up, for the broker stops or has a fault"
            task.over.set()

    async def _compact(self, partition: Partition, part: PartitionTask) -> None:
        def note(compacted: CompactionResult) -> None:
            part.phase = compacted.phase
            part.bytes_done, part.bytes_total = compacted.bytes_done, compacted.bytes_total

        self.cleaner.may_clean_again(partition)
        done = await self.cleaner.compact(partition, forced=True, compacted=CompactionResult(watcher=note))
        part.bytes_before, part.bytes_after = done.bytes_before, done.bytes_after
        part.records_before, part.records_after = done.records_before, done.records_after

    async def _retain(self, partition: Partition, part: PartitionTask) -> None:
        part.bytes_before, part.records_before = partition.log.size, _span(partition)
        await self._apply_retention([partition])
        part.bytes_after, part.records_after = partition.log.size, _span(partition)

    async def _verify(self, partition: Partition, part: PartitionTask) -> None:
        def note(done: int, total: int) -> None:
            part.bytes_done, part.bytes_total = done, total

        # One at a time: the threads that read are also those of clients who want what is not in memory.
        async with self._verifying:
            found = await verify_log(partition, self._executor, note)
        part.bytes_before = part.bytes_after = found.size
        part.records_before = part.records_after = found.records
        part.damaged = merge_ranges(partition.log.corrupt)


def _span(partition: Partition) -> int:
    return partition.log.end_offset - partition.log.start_offset
