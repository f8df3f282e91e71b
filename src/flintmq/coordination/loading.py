"""Reading an internal topic's records back. For a thread: it decodes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from flintmq.coordination.machine import Stored
from flintmq.errors import CorruptionError
from flintmq.model.batch import HEADER_SIZE, LENGTH_END, crc_is_right, read_header
from flintmq.model.records import records_of
from flintmq.storage.segment import FileRange

_UNPACKED_BYTES_MAX = 256 * 1024 * 1024
_MARKER_KEY = struct.Struct(">hh")
_COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction."""

    producer_id: int
    offset: int
    committed: bool


def read_entries(found: FileRange, from_offset: int) -> tuple[list[Stored | Marker], int]:
    """The whole batches of a range, and the offset behind them. CorruptionError if one of them is not sound."""
    data = memoryview(found.read())
    entries: list[Stored | Marker] = []
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
        for record in records_of(batch, limit=_UNPACKED_BYTES_MAX):
            if record.offset < from_offset:
                continue
            if header.is_control:
                kind = _MARKER_KEY.unpack_from(record.key or b"\0\0\0\0")[1]
                entries.append(Marker(header.producer_id, record.offset, kind == _COMMIT))
            elif record.key is not None:
                entries.append(Stored(record.key, record.value, record.offset, record.timestamp, producer_id))
        position += header.size
        offset = header.last_offset + 1
    return entries, offset
