"""Reading an internal topic's records back. For a thread: it decodes."""

from __future__ import annotations

from typing import NamedTuple

from flintmq.coordinator.runtime.machine import StoredRecord
from flintmq.errors import CorruptionError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, crc_is_right, read_header
from flintmq.records.limits import REPLAYED_BYTES_MAX
from flintmq.records.markers import COMMIT, control_type
from flintmq.records.record import records_of
from flintmq.storage.segment import FileRange


class TransactionEnd(NamedTuple):
    """A marker: the end of a transaction."""

    producer_id: int
    offset: int
    committed: bool


def read_records(found: FileRange, from_offset: int) -> tuple[list[StoredRecord | TransactionEnd], int]:
    """The whole batches of a range, and the offset behind them. CorruptionError if one of them is not sound."""
    data = memoryview(found.read())
    records: list[StoredRecord | TransactionEnd] = []
    position, offset = 0, from_offset
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if header.length < HEADER_SIZE - LENGTH_END:
            raise CorruptionError(f"{found.file.path} holds something else than a batch.")
        if position + header.size > len(data):
            break
        batch = data[position : position + header.size]
        if not crc_is_right(batch, header.crc):
            raise CorruptionError(
                f"The batch at offset {header.base_offset} of {found.file.path} is damaged."
            )
        producer_id = header.producer_id if header.is_transactional else -1
        for record in records_of(batch, limit=REPLAYED_BYTES_MAX):
            if record.offset < from_offset:
                continue
            if header.is_control:
                is_commit = control_type(record.key) == COMMIT
                records.append(TransactionEnd(header.producer_id, record.offset, is_commit))
            elif record.key is not None:
                records.append(
                    StoredRecord(record.key, record.value, record.offset, record.timestamp, producer_id)
                )
        position += header.size
        offset = header.last_offset + 1
    return records, offset
