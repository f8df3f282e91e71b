"""Batches of the log as Arrow columns: those of Spark's Kafka source, with its types and its nulls.

    decoded = decode(data, topic="t", partition=0, columns=("value",), start_offset=17)
    decoded.batch, decoded.next_offset

Invariant: rows come out in the order of the log, none below `start_offset`, none at `end_offset` or behind it, none
of a control batch or an aborted transaction. What is damaged is a CorruptionError that names topic, partition and
offset, never a row. Columns that are not asked for are not made. A time that microseconds of 64 bits cannot hold
becomes the nearest that they can. This module must not know where the bytes come from or where the columns go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.arrow.codec.batches import BatchSource, ScannedBatches, parts_of, scan
from flintmq.arrow.codec.limits import DEFAULT_LIMITS, DecodeLimits
from flintmq.arrow.codec.table import COLUMNS, RecordTable, schema_of
from flintmq.arrow.codec.varints import Flags
from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import CONTROL, TRANSACTIONAL, read_header
from flintmq.records.compression import Buffer
from flintmq.records.read_committed import ReadCommittedFilter

__all__ = ["COLUMNS", "DecodedRecords", "ReadCommittedFilter", "decode", "decode_in_parts", "schema_of"]

PART_BYTES: Final = 64 * 1024 * 1024
PART_ROWS: Final = 1 << 20
"""A part's usual bounds: more is for the JVM or for memory to suffer from."""


class DecodedRecords(NamedTuple):
    batch: pa.RecordBatch
    next_offset: int
    """Behind the last whole batch, or where the range ends if that comes first."""


def decode(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    columns: Sequence[str] = COLUMNS,
    start_offset: int = 0,
    end_offset: int | None = None,
    committed: ReadCommittedFilter | None = None,
    check_crc: bool = True,
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> DecodedRecords:
    """All of `data` at once: ValueError if that unpacks to too much for one Arrow batch.

    A batch that is cut off at the end is left out. `committed` must be shown all data once, in order.
    """
    parts = decode_in_parts(
        data,
        topic=topic,
        partition=partition,
        columns=columns,
        start_offset=start_offset,
        end_offset=end_offset,
        committed=committed,
        check_crc=check_crc,
        part_bytes=limits.data_bytes_max,
        part_rows=limits.batch_rows_max,
        limits=limits,
    )
    decoded = next(parts)
    if next(parts, None) is not None:
        raise ValueError(
            f"{topic}-{partition}: {len(data)} bytes unpack to more than {limits.data_bytes_max} bytes or "
            f"{limits.batch_rows_max} records; decode less at a time, or in parts."
        )
    return decoded


def decode_in_parts(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    columns: Sequence[str] = COLUMNS,
    start_offset: int = 0,
    end_offset: int | None = None,
    committed: ReadCommittedFilter | None = None,
    check_crc: bool = True,
    part_bytes: int = PART_BYTES,
    part_rows: int = PART_ROWS,
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> Iterator[DecodedRecords]:
    """As `decode`, in Arrow batches of bounded size, at least one: well compressed data may unpack to anything.

    A part ends after the batch that fills it. The last one's `next_offset` is that of the whole.
    """
    if len(data) > limits.data_bytes_max:
        raise ValueError(
            f"{topic}-{partition}: {len(data)} bytes are too many to decode at once; "
            f"give up to {limits.data_bytes_max} at a time."
        )
    source = BatchSource(topic, partition)
    table = RecordTable(
        source,
        columns,
        start_offset=start_offset,
        end_offset=end_offset,
        headers_max=limits.batch_headers_max,
    )
    # The loops over batches and records are compiled for `bytes`.
    batches, others_follow = scan(as_bytes(data), source, end_offset=end_offset, check_crc=check_crc)
    next_offset = max(start_offset, int(batches.last_offsets[-1]) + 1 if len(batches) else 0)
    if end_offset is not None and (others_follow or next_offset > end_offset):
        next_offset = max(start_offset, end_offset)
    chosen = np.flatnonzero(_shown(batches, committed) & (batches.last_offsets >= start_offset))
    if not len(chosen):
        yield DecodedRecords(table.no_rows(), next_offset)
    for part in parts_of(batches, chosen, bytes_max=part_bytes, rows_max=part_rows, limits=limits):
        yield DecodedRecords(table.rows_of(part), next_offset if part.is_last else part.next_offset)


def as_bytes(data: Buffer) -> bytes:
    """Return the same bytes, without a copy where that is possible."""
    if isinstance(data, memoryview) and isinstance(data.obj, bytes) and data.nbytes == len(data.obj):
        return data.obj
    return data if isinstance(data, bytes) else bytes(data)


def _shown(batches: ScannedBatches, committed: ReadCommittedFilter | None) -> Flags:
    """The batches that hold records which count."""
    shown: Flags = (batches.attributes & CONTROL) == 0
    if committed is not None:
        for batch in np.flatnonzero(batches.attributes & (CONTROL | TRANSACTIONAL)).tolist():
            whole = batches.whole(batch)
            try:
                shown[batch] = committed.shows(read_header(whole), whole)
            except (RequestError, CorruptionError) as error:
                raise batches.damage(batch, f"is no marker: {error}") from error
    return shown
