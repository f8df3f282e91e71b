"""Retention at work: logs let go of what has had its time (`retention.ms`, `retention.bytes`).

ORDER, as for deleted records: clients no longer see them; the new starts are on stable storage; the files go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from flintmq.effects import Clock, Executor
from flintmq.errors import StorageError
from flintmq.partitions.maintenance.table_retention import TableOffset, TableRetention
from flintmq.partitions.partition import Partition
from flintmq.partitions.record_deletion import delete_records
from flintmq.storage.log_dir import LogDir
from flintmq.storage.retention import ExpiredSegments, expired_segments

logger = logging.getLogger(__name__)

# One checkpoint is written for so many partitions at a time.
_PARTITIONS_AT_ONCE = 500


class RetentionResult(NamedTuple):
    """What retention did to one partition."""

    partition: Partition
    start_before: int
    expired: ExpiredSegments | None
    """None if nothing had to go."""


async def retain(
    partitions: Iterable[Partition],
    *,
    log_dir: LogDir,
    clock: Clock,
    executor: Executor,
    tables: TableRetention | None = None,
    needed: Callable[[Partition], TableOffset | None] = lambda _: None,
) -> list[RetentionResult]:
    """Apply retention to these partitions, once. `needed` tells how far the tables of a partition are."""
    tables = tables or TableRetention()
    tables.begin()
    done: list[RetentionResult] = []
    going: list[tuple[Partition, int]] = []
    for partition in partitions:
        one = _decide(partition, clock.now_ms(), tables, needed)
        if one is None:
            continue
        done.append(one)
        if one.expired is not None:
            going.append((partition, one.expired.start_offset))
        elif partition.log.pending_delete:
            going.append((partition, partition.log.start_offset))
        if len(going) >= _PARTITIONS_AT_ONCE:
            await delete_records(going, log_dir=log_dir, executor=executor)
            going = []
    if going:
        await delete_records(going, log_dir=log_dir, executor=executor)
    return done


def _decide(
    partition: Partition,
    now_ms: int,
    tables: TableRetention,
    needed: Callable[[Partition], TableOffset | None],
) -> RetentionResult | None:
    log = partition.log
    if log.offline is not None or partition.deleted:
        return None
    found, lost = tables.decide(
        partition, expired_segments(log, now_ms), now_ms=now_ms, needed=needed(partition)
    )
    if found is not None:
        if found.needs_roll:
            try:
                log.roll(now_ms)
            except StorageError as error:
                logger.warning("%s keeps expired records: %s", log.name, error)
                return RetentionResult(partition, log.start_offset, None)
        log.counters.retention_bytes += found.size
        log.counters.unsynced_deleted += lost
        logger.info(
            "%s: %d segments (%d bytes) below offset %d go, by %s",
            log.name,
            found.segments,
            found.size,
            found.start_offset,
            found.reason.value,
        )
    return RetentionResult(partition, log.start_offset, found)
