"""Compaction at work: which log is next, its passes in another process, their results put in place.

One log at a time. A pass may only touch what is flushed, and what the recovery point on disk covers: recovery takes a
hole above it for the end of the log. A log in which a pass met something damaged is left alone until the broker is
started again, or somebody asks for it by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from flintmq.effects import Clock, Executor
from flintmq.errors import FlintError, LogOffline
from flintmq.partitions.maintenance.segment_rewrite import (
    RewriteTurns,
    SegmentRewriteError,
    discard_rewritten,
    put_in_place,
)
from flintmq.partitions.partition import Partition
from flintmq.settings import BrokerConfig
from flintmq.storage.compaction.job import (
    CompactionDamage,
    CompactionFailure,
    CompactionJob,
    CompactionProgress,
    CompactionSummary,
    Event,
    GroupResult,
    SegmentInput,
)
from flintmq.storage.compaction.planning import CleanableRange, cleanable_range
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.log import Log
from flintmq.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

# How often a start is written that has moved on by the time it is on disk.
_START_TRIES = 5
# Beyond this a rate is no limit.
_RATE_MAX = float(1 << 40)


class CompactionRunner(Protocol):
    """Where passes run: a process of its own."""

    def run(self, job: CompactionJob) -> AsyncGenerator[Event, None]:
        """The events of one pass. After a GroupResult the next one is made only when it is asked for."""
        ...


@dataclass(slots=True)
class CompactionResult:
    """What became of one log, over all passes."""

    passes: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    phase: str = ""
    bytes_done: int = 0
    bytes_total: int = 0
    watcher: Callable[[CompactionResult], object] | None = field(default=None, repr=False)

    def note(self, progress: CompactionProgress) -> None:
        self.phase, self.bytes_done, self.bytes_total = (
            progress.phase,
            progress.bytes_done,
            progress.bytes_total,
        )
        if self.watcher is not None:
            self.watcher(self)


class LogCleaner:
    def __init__(
        self,
        compactions: CompactionRunner,
        *,
        log_dir: LogDir,
        clock: Clock,
        executor: Executor,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._compactions = compactions
        self._log_dir = log_dir
        self._clock = clock
        self._executor = executor
        self._config = config
        self._turn = asyncio.Lock()
        self.turns = RewriteTurns()
        """Also taken by repairs: of those who rewrite segments of a log one works at a time."""
        self.uncleanable: dict[bytes, dict[int, str]] = {}
        """By topic id and partition: why."""

    async def compact(
        self, partition: Partition, *, forced: bool = False, compacted: CompactionResult | None = None
    ) -> CompactionResult:
        """Compact all that may be; when `forced` also what is in the active segment, which ends then.

        Uncleanable if that is not possible.
        """
        compacted = compacted or CompactionResult()
        async with self._turn, self.turns.of(partition):
            await self._compact(partition, forced, compacted)
        return compacted

    def gave_up(self, partition: Partition) -> bool:
        return partition.index in self.uncleanable.get(partition.topic_id, ())

    async def _compact(self, partition: Partition, forced: bool, compacted: CompactionResult) -> None:
        log = partition.log
        if not log.is_created or partition.deleted:
            return
        if log.offline is not None:
            raise LogOffline(log.offline)
        if log.truncation is not None:
            raise SegmentRewriteError(f"{log.name} is being truncated.")
        generation = log.generation
        now_ms = self._clock.now_ms()
        if forced and log.active.size and log.last_stable_offset > log.active.base_offset:
            log.roll(now_ms)
        found = cleanable_range(log, now_ms, min_lag_ms=0 if forced else None)
        end_offset = found.end_offset
        await self._make_durable(partition, end_offset)
        while found.end_offset > found.first_dirty_offset or (forced and not compacted.passes):
            await self._pass(partition, found._replace(end_offset=end_offset), compacted, generation)
            compacted.passes += 1
            found = cleanable_range(log, now_ms, min_lag_ms=0 if forced else None)
            found = found._replace(end_offset=end_offset)
        logger.info(
            "%s: compacted up to offset %d, %d of %d records and %d of %d bytes stay",
            log.name,
            log.first_dirty_offset,
            compacted.records_after,
            compacted.records_before,
            compacted.bytes_after,
            compacted.bytes_before,
        )

    async def _make_durable(self, partition: Partition, end_offset: int) -> None:
        """ORDER: the recovery point is on disk BEFORE a segment below it gets holes, and so is a snapshot of the
        producers to which no batch below `end_offset` need be added: not all of these will be there.

        By the partition's own flusher: of two syncs of one file at a time only one is told of an error.
        """
        log = partition.log
        if log.snapshots.newest < end_offset:
            log.write_snapshot()
        flushed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        partition.flush(lambda error: None if flushed.done() else flushed.set_result(error))
        error = await flushed
        if log.offline is not None:
            raise LogOffline(log.offline) from error
        if error is not None:
            raise SegmentRewriteError(str(error)) from error
        if log.snapshots.durable_offset < end_offset:
            raise SegmentRewriteError(f"the producers of {log.name} could not be written down")
        await self._executor.run(self._log_dir.checkpoint)

    async def _make_start_durable(self, partition: Partition) -> None:
        """ORDER: the start is on disk BEFORE a pass leaves out what lies below it. Without it a crash brings that
        back, and what was known of its transactions is gone."""
        log = partition.log
        for _ in range(_START_TRIES):
            if self._log_dir.start_is_durable(log):
                return
            await self._executor.run(self._log_dir.checkpoint_starts)
            if partition.deleted or log.offline is not None:
                raise SegmentRewriteError(f"{log.name} is gone.")
        raise SegmentRewriteError(f"the start of {log.name} moves on and on")

    async def _pass(
        self, partition: Partition, found: CleanableRange, compacted: CompactionResult, generation: int
    ) -> None:
        log, config = partition.log, self._config()
        await self._make_start_durable(partition)
        _check_generation(log, generation)
        job = self._job(log, found, config)
        summary: CompactionSummary | None = None
        events = self._compactions.run(job)
        try:
            async for event in events:
                if partition.deleted or log.offline is not None:
                    raise SegmentRewriteError(f"{log.name} is gone.")
                _check_generation(log, generation)
                match event:
                    case CompactionProgress():
                        compacted.note(event)
                    case GroupResult():
                        await put_in_place(
                            log, event, generation, executor=self._executor, now_ms=self._clock.now_ms()
                        )
                    case CompactionDamage():
                        self._found_damage(partition, event)
                    case CompactionFailure():
                        raise SegmentRewriteError(event.reason)
                    case CompactionSummary():
                        summary = event
        except (FlintError, OSError):
            # ORDER: the process that writes such files is gone BEFORE they are removed.
            await events.aclose()
            await self._executor.run(discard_rewritten, log)
            raise
        finally:
            await events.aclose()
        if summary is None:
            raise SegmentRewriteError(f"the compaction of {log.name} ended too early")
        if not compacted.passes:
            compacted.bytes_before, compacted.records_before = summary.bytes_before, summary.records_before
        else:
            # A later pass reads again what an earlier one left; only what it adds is new.
            compacted.bytes_before += summary.bytes_before - compacted.bytes_after
            compacted.records_before += summary.records_before - compacted.records_after
        compacted.bytes_after, compacted.records_after = summary.bytes_after, summary.records_after
        if summary.keyless_records:
            # Written before the topic was compacted: since then they are refused.
            logger.warning("%s: %d records without a key are dropped", log.name, summary.keyless_records)
        log.counters.compaction_bytes += summary.bytes_before
        log.counters.compactions += 1
        if summary.next_dirty_offset <= found.first_dirty_offset < found.end_offset:
            raise SegmentRewriteError(
                f"The keys of one batch of {log.name} do not fit into log.cleaner.dedupe.buffer.size."
            )
        _check_generation(log, generation)
        log.advance_first_dirty(summary.next_dirty_offset)
        await self._executor.run(self._log_dir.checkpoint)

    def _job(self, log: Log, found: CleanableRange, config: BrokerConfig) -> CompactionJob:
        topic = log.config
        return CompactionJob(
            directory=log.directory,
            segments=tuple(
                SegmentInput(segment.base_offset, segment.size)
                for segment in log.segments[:-1]
                if segment.base_offset < found.end_offset
            ),
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=topic.segment_bytes,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            dedupe_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            producers={
                producer.producer_id: (
                    producer.epoch,
                    producer.batches[-1].last_offset if producer.batches else -1,
                )
                for producer in log.producers
            },
            aborted=tuple(
                one
                for segment in log.segments
                if segment.base_offset >= found.end_offset or segment is log.active
                for one in segment.aborted
                if one.first_offset < found.end_offset
            ),
            bytes_per_second=int(rate)
            if (rate := config.log_cleaner_io_max_bytes_per_second) < _RATE_MAX
            else 0,
        )

    def may_clean_again(self, partition: Partition) -> None:
        """Forget that a pass has met damage in a log: it is repaired, or an operator asks for another pass."""
        self.uncleanable.get(partition.topic_id, {}).pop(partition.index, None)

    def _found_damage(self, partition: Partition, damage: CompactionDamage) -> None:
        log = partition.log
        if not damage.checksum_is_right:
            log.add_corrupt(CorruptRange(damage.first_offset, damage.end_offset))
        self.uncleanable.setdefault(partition.topic_id, {})[partition.index] = damage.reason
        raise SegmentRewriteError(
            f"{log.name} cannot be compacted: {damage.reason} (segment {damage.segment}, byte {damage.position})."
        )


def _check_generation(log: Log, generation: int) -> None:
    if log.generation != generation:
        raise SegmentRewriteError(f"{log.name} was truncated meanwhile.")
