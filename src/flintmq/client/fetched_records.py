"""The records in what a fetch returns. Pure.

A broker gives whole batches, the first of which may begin before the offset asked for, and the last of which
may be cut off. Invariant: records come out in ascending offsets, none below the offset asked for, and the
next offset is past every batch that was whole, even one that compaction or a marker left without records.
"""

from __future__ import annotations

from typing import NamedTuple

from flintmq.effects import Buffer
from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, crc_is_right, read_header
from flintmq.records.limits import FETCHED_BYTES_MAX
from flintmq.records.read_committed import ReadCommittedFilter
from flintmq.records.record import MAGIC, Record, records_of


class FetchedRecords(NamedTuple):
    records: list[Record]
    next_offset: int


def read_batches(
    data: Buffer,
    from_offset: int,
    *,
    committed: ReadCommittedFilter | None = None,
    producer_id: int | None = None,
) -> FetchedRecords:
    """All records from `from_offset` on, or those that are `committed`, or those of one producer. Markers of
    transactions are not records of anybody."""
    view = memoryview(data)
    records: list[Record] = []
    next_offset = from_offset
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        end = position + header.length + LENGTH_END
        if header.magic != MAGIC or header.length < HEADER_SIZE - LENGTH_END:
            raise CorruptionError(f"what follows offset {next_offset - 1} is not a record batch of magic 2")
        if end > len(view):
            break
        batch = view[position:end]
        if not crc_is_right(batch, header.crc):
            raise CorruptionError(f"the batch at offset {header.base_offset} fails its CRC")
        is_shown = not header.is_control
        if committed is not None and (header.is_transactional or header.is_control):
            is_shown = _is_committed(committed, header, batch)
        if producer_id is not None and header.producer_id != producer_id:
            is_shown = False
        if header.last_offset >= from_offset:
            if is_shown:
                records += _readable(batch, header.base_offset, from_offset)
            next_offset = header.last_offset + 1
        position = end
    return FetchedRecords(records, next_offset)


def _is_committed(committed: ReadCommittedFilter, header: BatchHeader, batch: memoryview) -> bool:
    try:
        return committed.shows(header, batch)
    except RequestError as error:
        raise CorruptionError(f"the marker at offset {header.base_offset} cannot be read: {error}") from error


def _readable(batch: memoryview, base_offset: int, from_offset: int) -> list[Record]:
    try:
        every = records_of(batch, limit=FETCHED_BYTES_MAX)
        return [record for record in every if record.offset >= from_offset]
    except RequestError as error:
        raise CorruptionError(f"the batch at offset {base_offset} cannot be read: {error}") from error
