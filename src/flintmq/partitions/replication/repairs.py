"""Repairs damaged ranges of the logs of this broker by batches of other replicas, while it runs.

A log says when damage is found: by the scrub, a verification, a read, a compaction, or when it was opened. Each
damaged partition has a task, which tries again with a growing delay, and at once when its role changes. One attempt
runs at a time, and rewrites one segment; it takes turns with compactions of the same log.

Invariants: a damaged range is refused until sound batches are in its place, on stable storage. What was prepared
counts only if the log was not truncated meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.effects import Clock, Executor, Network
from flintmq.errors import FlintError
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.log_cleaner import LogCleaner
from flintmq.partitions.maintenance.segment_rewrite import (
    SegmentRewriteError,
    discard_rewritten,
    put_in_place,
)
from flintmq.partitions.partition import Partition, Role
from flintmq.partitions.replication.gap_fetcher import GapFetcher
from flintmq.partitions.replication.leader import LeaderReplication
from flintmq.partitions.replication.repair_plan import RepairAction, repair_action, repair_sources
from flintmq.settings import BrokerConfig
from flintmq.storage.corrupt_ranges import CorruptRange, subtract_range
from flintmq.storage.log import Log
from flintmq.storage.repair.segment_repair import SegmentRepair
from flintmq.storage.segment import Segment, segment_index

logger: Final = logging.getLogger(__name__)

_DELAY_FIRST_S: Final = 1.0
_DELAY_MAX_S: Final = 60.0
_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Copied in one go by a thread, which others wait for."""


class RepairNotPossible(FlintError):
    """Damage that cannot be repaired now, and why."""


class _DamagedSegment(NamedTuple):
    base_offset: int
    ranges: list[CorruptRange]

    @property
    def damage_end(self) -> int:
        return max(bad.end_offset for bad in self.ranges)


class _Task(NamedTuple):
    work: asyncio.Task[None]
    role_changed: asyncio.Event


class ReplicaRepairs:
    def __init__(
        self,
        partitions: LocalPartitions,
        cleaner: LogCleaner,
        replication: LeaderReplication,
        network: Network,
        *,
        node_id: int,
        clock: Clock,
        executor: Executor,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._partitions = partitions
        self._cleaner = cleaner
        self._replication = replication
        self._network = network
        self._node_id = node_id
        self._clock = clock
        self._executor = executor
        self._config = config
        self._tasks: dict[Partition, _Task] = {}
        self._turn = asyncio.Lock()
        self._is_closed = False

    # ---- life

    def start(self) -> None:
        """Repair what is known to be damaged. ORDER: after the partitions are loaded."""
        self._partitions.on_role(self._role_changed)
        for partition in self._partitions:
            self._begin(partition)

    async def close(self) -> None:
        self._is_closed = True
        tasks = [task.work for task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def damage_found(self, log: Log) -> None:
        """Begin to repair a log in which damage was found."""
        partition = self._partitions.by_id.get((log.topic_id, log.partition))
        if partition is not None:
            self._begin(partition)

    def _role_changed(self, partition: Partition) -> None:
        task = self._tasks.get(partition)
        if task is None:
            self._begin(partition)
        else:
            task.role_changed.set()

    def _begin(self, partition: Partition) -> None:
        if self._is_closed or partition in self._tasks or not _is_damaged(partition):
            return
        role_changed = asyncio.Event()
        work = asyncio.create_task(
            self._repair_while_damaged(partition, role_changed), name=f"repair of {partition.log.name}"
        )
        self._tasks[partition] = _Task(work, role_changed)

    async def _repair_while_damaged(self, partition: Partition, role_changed: asyncio.Event) -> None:
        try:
            await self._repair_all(partition, role_changed)
        finally:
            # In the step that saw no more damage: what is found after it begins another task.
            self._tasks.pop(partition, None)

    async def _repair_all(self, partition: Partition, role_changed: asyncio.Event) -> None:
        delay_s, said = _DELAY_FIRST_S, ""
        while _is_damaged(partition):
            role_changed.clear()
            try:
                async with self._turn:
                    if _is_damaged(partition):
                        await self._repair_first(partition)
                delay_s, said = _DELAY_FIRST_S, ""
                continue
            except (FlintError, OSError) as error:
                reason = str(error)
            except Exception as error:
                # A fault here must not end the repairs of a partition.
                logger.exception("a repair of %s failed", partition.log.name)
                said = reason = str(error)
            if reason != said and _is_damaged(partition):
                said = reason
                bad = min(partition.log.corrupt)
                logger.warning(
                    "%s: offsets %d to %d stay refused, and will be repaired later: %s",
                    partition.log.name,
                    bad.base_offset,
                    bad.end_offset - 1,
                    reason,
                )
            try:
                await asyncio.wait_for(role_changed.wait(), delay_s)
                delay_s = _DELAY_FIRST_S
            except TimeoutError:
                delay_s = min(2 * delay_s, _DELAY_MAX_S)

    # ---- one segment

    async def _repair_first(self, partition: Partition) -> None:
        """Repair the first damaged segment. RepairNotPossible, another FlintError or OSError if that fails."""
        log = partition.log
        damaged = _first_damaged(log)
        states = partition.replicas if partition.role is Role.LEADER else None
        action = repair_action(
            leads=partition.role is Role.LEADER,
            damage_end=damaged.damage_end,
            high_watermark=log.high_watermark,
            committed_end=log.end_offset if states is None else states.committed_end(log.end_offset),
            is_alone=states is None or states.isr == [self._node_id],
        )
        if action is RepairAction.RESIGN:
            self._replication.resign(partition)
            raise RepairNotPossible("They are above the high watermark; another replica is to lead.")
        if action is RepairAction.WAIT:
            raise RepairNotPossible("They are above the high watermark, where no replica may be asked.")
        fetcher = GapFetcher(
            partition,
            self._sources(partition),
            self._network,
            timeout_s=self._config().replica_socket_timeout_ms / 1000,
        )
        try:
            # First of all, for the rest of an attempt is work.
            await fetcher.check(max(min(damaged.ranges).base_offset, log.start_offset))
            async with self._cleaner.turns.of(partition):
                await self._rewrite(partition, damaged.base_offset, fetcher)
        finally:
            fetcher.close()

    def _sources(self, partition: Partition) -> list[int]:
        image = self._partitions.image
        topic = image.topics_by_id.get(partition.topic_id)
        return repair_sources(
            node_id=self._node_id,
            leader=partition.leader,
            isr=partition.isr,
            replicas=() if topic is None else topic.partitions[partition.index].replicas,
            alive=image.brokers,
        )

    async def _rewrite(self, partition: Partition, base_offset: int, fetcher: GapFetcher) -> None:
        log, generation = partition.log, partition.log.generation
        start_offset = log.start_offset
        await self._make_durable(partition, base_offset)
        _check_unchanged(partition, generation)
        index = segment_index(log.segments, base_offset)
        segment = log.segments[index]
        if segment.base_offset != base_offset:
            raise SegmentRewriteError(f"{log.name} was changed meanwhile.")
        end_offset = log.segments[index + 1].base_offset
        repair = SegmentRepair(log, segment, end_offset=end_offset, start_offset=start_offset)
        try:
            sources = await self._copy(partition, repair, fetcher, start_offset, generation)
            result = await self._executor.run(repair.finish)
            await put_in_place(log, result, generation, executor=self._executor, now_ms=self._clock.now_ms())
        except (FlintError, OSError):
            await self._executor.run(discard_rewritten, log)
            raise
        self._repaired(partition, segment, end_offset, repair, sources)

    async def _make_durable(self, partition: Partition, base_offset: int) -> None:
        """ORDER: the segment is sealed and flushed BEFORE it is replaced. The recovery point and the start are on
        disk BEFORE, too: recovery takes offsets that are missing above the one for the end of the log, and damaged
        batches below the other are left out."""
        log, log_dir = partition.log, self._partitions.log_dir
        if log.active.base_offset == base_offset:
            log.roll(self._clock.now_ms())
        flushed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        partition.flush(lambda error: None if flushed.done() else flushed.set_result(error))
        error = await flushed
        if error is not None:
            raise SegmentRewriteError(str(error)) from error
        await self._executor.run(log_dir.checkpoint)
        if not log_dir.start_is_durable(log):
            raise SegmentRewriteError(f"The start of {log.name} has moved.")

    async def _copy(
        self,
        partition: Partition,
        repair: SegmentRepair,
        fetcher: GapFetcher,
        start_offset: int,
        generation: int,
    ) -> list[int]:
        """Copy what is sound from the segment, and the rest from other replicas; return which ones."""

        async def fill(batches: memoryview) -> None:
            await self._executor.run(repair.fill, batches)

        sources: list[int] = []
        while not repair.is_copied:
            gap = await self._executor.run(repair.advance, _PIECE_BYTES)
            _check_unchanged(partition, generation)
            if gap is not None:
                sources += await fetcher.fetch(gap, start_offset=start_offset, write=fill)
        return list(dict.fromkeys(sources))

    def _repaired(
        self,
        partition: Partition,
        segment: Segment,
        end_offset: int,
        repair: SegmentRepair,
        sources: list[int],
    ) -> None:
        log = partition.log
        before = len(log.corrupt)
        log.forget_corrupt(segment.base_offset, end_offset)
        log.counters.repaired_ranges += before - len(log.corrupt)
        if log.config.compacts and repair.gaps:
            log.add_dirty(repair.gaps[0].start_offset)
        if not log.corrupt:
            self._cleaner.may_clean_again(partition)
        if repair.gaps:
            logger.info(
                "%s: %d damaged ranges of offsets from %d to %d were copied from %s",
                log.name,
                len(repair.gaps),
                repair.gaps[0].start_offset,
                repair.gaps[-1].end_offset - 1,
                " and ".join(f"broker {node}" for node in sources) or "no broker",
            )
        else:
            logger.info("%s: nothing is damaged any more from offset %d on", log.name, segment.base_offset)


def _is_damaged(partition: Partition) -> bool:
    log = partition.log
    return bool(log.corrupt) and not partition.deleted and log.offline is None


def _first_damaged(log: Log) -> _DamagedSegment:
    """Return the first segment that has damage, and all that is known of damage in it."""
    segments = log.segments
    index = segment_index(segments, min(log.corrupt).base_offset)
    start = segments[index].base_offset
    end = segments[index + 1].base_offset if index + 1 < len(segments) else log.end_offset
    outside = set(subtract_range(log.corrupt, start, end))
    return _DamagedSegment(start, [bad for bad in log.corrupt if bad not in outside])


def _check_unchanged(partition: Partition, generation: int) -> None:
    log = partition.log
    if partition.deleted or log.offline is not None or log.generation != generation:
        raise SegmentRewriteError(f"{log.name} was changed meanwhile.")
