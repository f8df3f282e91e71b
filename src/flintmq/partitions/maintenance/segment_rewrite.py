"""What compaction and repair share: turns to rewrite the segments of a log, and putting a rewritten one in place.

A rewritten segment lies beside the log's files, synced, under names that end in `.cleaned`
(`storage.compaction.cleaned_segment`). There is one note about a swap in a directory, so one rewriter works on a log
at a time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from flintmq.effects import Executor, read_file
from flintmq.errors import LogOffline, StorageError
from flintmq.partitions.partition import Partition
from flintmq.storage.aborted_transactions import decode_aborted
from flintmq.storage.compaction.job import GroupResult
from flintmq.storage.compaction.swap import (
    CLEANED,
    SWAP_FILE,
    Swap,
    discard_cleaned,
    finish_swap,
    retract_swap,
    write_swap,
)
from flintmq.storage.log import Log
from flintmq.storage.segment import LOG, TXN_INDEX, Segment

logger: Final = logging.getLogger(__name__)


class SegmentRewriteError(StorageError):
    """Segments could not be rewritten now; the log is as it was, or some of them are rewritten."""


class RewriteTurns:
    """A lock for each log of which a segment is rewritten now; none for the others."""

    def __init__(self) -> None:
        self._locks: dict[Partition, asyncio.Lock] = {}
        self._users: dict[Partition, int] = {}

    @asynccontextmanager
    async def of(self, partition: Partition) -> AsyncIterator[None]:
        lock = self._locks.setdefault(partition, asyncio.Lock())
        self._users[partition] = self._users.get(partition, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[partition] -= 1
            if not self._users[partition]:
                del self._users[partition], self._locks[partition]


async def put_in_place(
    log: Log, group: GroupResult, generation: int, *, executor: Executor, now_ms: int
) -> None:
    """Let a rewritten segment take the place of those it was made from, in the log as it was in `generation`.

    SegmentRewriteError if the log has changed; LogOffline if it is not known what the disk holds.
    """
    swap = Swap(group.bases, group.has_transaction_index)
    rewritten = _segment_of(log, group, now_ms)
    disk, directory = log.disk, log.directory

    def announce() -> bool:
        with log.close_guard.entered() as is_mine:
            if not is_mine or log.generation != generation:
                return False
            if group.has_transaction_index:
                rewritten.aborted = decode_aborted(read_file(disk, f"{rewritten.path(TXN_INDEX)}{CLEANED}"))
            path = f"{rewritten.path(LOG)}{CLEANED}"
            if disk.size(path) != group.size:
                raise OSError(errno.EIO, "the rewritten segment is not as it was reported", path)
            write_swap(disk, directory, swap)
            return True

    def finish() -> None:
        with log.close_guard.entered() as is_mine:
            # A truncation has finished it, and the names may be those of other segments by now.
            if is_mine and log.generation == generation:
                finish_swap(disk, directory, swap)

    if not _is_current(log, swap):
        # Deleted meanwhile, by age or by a client.
        raise SegmentRewriteError(f"{log.name} was changed meanwhile.")
    try:
        is_mine = await executor.run(announce)
    except OSError as error:
        if disk.exists(f"{directory}/{SWAP_FILE}"):
            # It may be found after a crash or not; with it, rewritten files must not change any more.
            log.go_offline(f"the note about a rewritten segment could not be synced: {error}")
            raise LogOffline(log.offline) from error
        raise SegmentRewriteError(str(error)) from error
    if not is_mine:
        raise SegmentRewriteError(f"{log.name} is gone.")
    try:
        if not log.replace_segments(swap, rewritten, generation):
            await executor.run(_retract, log)
            raise SegmentRewriteError(f"{log.name} was changed meanwhile.")
        await executor.run(finish)
    except OSError as error:
        log.go_offline(f"a rewritten segment could not be put in place: {error}")
        raise LogOffline(log.offline) from error


def discard_rewritten(log: Log) -> None:
    """Remove what a rewriter leaves that failed; if that is not possible, the next one or the next start does it."""
    with log.close_guard.entered() as is_mine:
        try:
            if is_mine:
                discard_cleaned(log.disk, log.directory)
        except OSError as error:
            logger.warning("%s: an unfinished segment cannot be removed: %s", log.name, error)


def _is_current(log: Log, swap: Swap) -> bool:
    bases = {segment.base_offset for segment in log.segments}
    return all(base in bases for base in swap.bases)


def _retract(log: Log) -> None:
    with log.close_guard.entered() as is_mine:
        if is_mine:
            retract_swap(log.disk, log.directory)


def _segment_of(log: Log, group: GroupResult, now_ms: int) -> Segment:
    segment = log.new_segment(group.bases[0], now_ms)
    segment.size = group.size
    segment.first_timestamp = group.first_timestamp
    segment.max_timestamp = group.max_timestamp
    segment.max_timestamp_offset = group.max_timestamp_offset
    segment.index_bytes = group.index_bytes
    segment.drop_indexes()
    return segment
