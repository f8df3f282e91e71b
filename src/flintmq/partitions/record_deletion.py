"""Deleting records from the beginning of partitions (KIP-107)."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.effects import Executor
from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.partition import Partition
from flintmq.storage.log_dir import LogDir

TO_HIGH_WATERMARK = -1


def new_start(partition: Partition, offset: int) -> int:
    """Where the partition would begin; RequestError if its records may not be deleted up to there."""
    log = partition.log
    if log.config.cleanup_policy == ("compact",):
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"The records of {log.name} are compacted, they cannot be deleted."
        )
    start = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= start <= log.high_watermark:
        raise RequestError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {start} of {log.name} is not between 0 and its high watermark, {log.high_watermark}.",
        )
    return start


async def delete_records(
    wanted: Sequence[tuple[Partition, int]], *, log_dir: LogDir, executor: Executor
) -> None:
    """Let each partition begin at its checked new start.

    ORDER: clients no longer see the records; the new starts are on stable storage; the files go. A crash
    between leaves files that hold nothing, never a start without its files.
    """
    for partition, start in wanted:
        partition.log.advance_start(start)
    # ORDER: only what lies below a start that is written now; more may come meanwhile.
    pending = [(partition.log, list(partition.log.pending_delete)) for partition, _ in wanted]
    await executor.run(log_dir.checkpoint_starts)
    failure: OSError | None = None
    for log, segments in pending:
        if segments:
            try:
                await executor.run(log.remove_files, segments)
                log.forget_deleted(segments)
            except OSError as error:
                failure = error
    if failure is not None:
        raise failure
