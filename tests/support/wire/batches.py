"""Batches as clients send them, for tests of the log."""

from __future__ import annotations

from flintmq.records.batch import BatchHeader, read_header
from flintmq.records.compression import Codec
from flintmq.records.record import build_batch
from flintmq.storage.log import Appended, Log


def produced(
    *values: bytes,
    timestamp: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    append_time: int | None = None,
    is_transactional: bool = False,
) -> bytearray:
    """One batch with a record for each value, all at one time."""
    return bytearray(
        build_batch(
            [(None, value, timestamp, ()) for value in values or (b"value",)],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            append_time=append_time,
            is_transactional=is_transactional,
        )
    )


def append(log: Log, batch: bytearray, *, epoch: int = 0, now_ms: int = 1_700_000_000_000) -> Appended:
    """Straight into the log, made visible at once."""
    view = memoryview(batch)
    appended = log.append(view, read_header(view), leader_epoch=epoch, now_ms=now_ms)
    log.advance(log.end_offset)
    return appended


def split(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches in what was read."""
    found = []
    position = 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append((header, data[position : position + header.size]))
        position += header.size
    return found
