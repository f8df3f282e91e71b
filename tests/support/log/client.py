"""Clients of one partition, whose writes the model of its log knows of: before, while and after they are done."""

from __future__ import annotations

from flintmq.errors import FlintError, RequestError
from flintmq.partitions.partition import Partition
from flintmq.records.batch import read_header
from flintmq.records.markers import Marker, marker_batch
from support.log.model import LogModel, Written, placed


def send(model: LogModel, partition: Partition, batch: bytearray, now_ms: int) -> Written:
    """Append a batch that the log has not seen."""
    view = memoryview(batch)
    header = partition.check(view, now_ms)
    attempt = placed(batch, partition.log.end_offset, partition.leader_epoch)
    model.ghosts.append(attempt)
    try:
        appended = partition.append(view, header, now_ms)
    except RequestError:
        model.ghosts.remove(attempt)
        raise
    ends = (appended.base_offset, appended.last_offset + 1, partition.log.end_offset)
    assert ends == (attempt.base, attempt.end, attempt.end), "a new batch was taken for a repetition"
    _written(model, partition, attempt)
    return attempt


def end_transaction(
    model: LogModel, partition: Partition, marker: Marker, now_ms: int, *, bumps_epoch: bool
) -> Written:
    """Append a marker, whether there is anything to end or not."""
    attempt = placed(marker_batch(marker, now_ms), partition.log.end_offset, partition.leader_epoch)
    model.ghosts.append(attempt)
    appended = partition.append_marker(marker, now_ms, bumps_epoch=bumps_epoch)
    assert appended.base_offset == appended.last_offset == attempt.base
    _written(model, partition, attempt)
    return attempt


def _written(model: LogModel, partition: Partition, attempt: Written) -> None:
    model.ghosts.remove(attempt)
    model.batches.append(attempt)
    log = partition.log
    if log.config.flush_messages != 1:
        return

    def acknowledged(failure: FlintError | None) -> None:
        if failure is None and log.config.flush_messages == 1:
            model.promised = max(model.promised, attempt.end)

    if partition.is_visible(attempt.end - 1):
        acknowledged(None)
    else:
        partition.when_visible(attempt.end - 1, acknowledged)


def retry(partition: Partition, written: Written, now_ms: int) -> None:
    """Send once more what the log must know: it gets the original offset, and writes nothing."""
    batch = bytearray(written.data)
    batch[0:8] = bytes(8)
    end_before = partition.log.end_offset
    appended = partition.append(memoryview(batch), read_header(batch), now_ms)
    assert (appended.base_offset, appended.last_offset + 1) == (written.base, written.end)
    assert partition.log.end_offset == end_before
