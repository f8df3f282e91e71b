"""A record batch (magic 2), seen from outside: its 61-byte header.

    0 base offset (8) · 8 length (4) · 12 leader epoch (4) · 16 magic (1) · 17 crc (4) ·
    21 attributes (2) · 23 last offset delta (4) · 27 base timestamp (8) · 35 max timestamp (8) ·
    43 producer id (8) · 51 producer epoch (2) · 53 base sequence (4) · 57 record count (4) · 61 records

The CRC covers bytes 21 to the end, so a broker may set the base offset and the leader epoch without
touching it. `length` counts from byte 12. This module never looks at the records themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.checksum import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LENGTH_END: Final = 12
CRC_POSITION: Final = 17
CRC_START: Final = 21

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

CODEC_COUNT: Final = 5
ZSTD: Final = 4
MAX_INT32: Final = 0x7FFFFFFF
# A record is at least 7 bytes: its length, attributes, two deltas, two null lengths and a header count.
RECORD_SIZE_MIN: Final = 7
# What a byte can unpack to at most, by codec: deflate repeats 258 bytes in two bits, snappy 64 in three bytes, lz4
# 255 in one, a zstd block 128 KiB in four. A count beyond that is a lie that would waste offsets.
_EXPANSION_MAX: Final = (1, 1032, 22, 256, 32768)

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_UINT32: Final = struct.Struct(">I")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """The header's fields in their order on the wire, as `HEADER.unpack_from` gives them."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def advance_sequence(sequence: int, by: int) -> int:
    """Sequence numbers wrap from 2^31-1 to 0."""
    return (sequence + by) & MAX_INT32


_header: Final[Callable[[type[BatchHeader], tuple[int, ...]], BatchHeader]] = tuple.__new__
"""What `BatchHeader._make` does, without its check of the count: every batch that is written pays for it."""


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    return _header(BatchHeader, HEADER.unpack_from(data, position))


def crc_is_right(batch: memoryview, crc: int) -> bool:
    return crc32c(batch[CRC_START:]) == crc


def check_produced(
    batch: memoryview, max_bytes: int, zstd_allowed: bool, earliest_ms: int, latest_ms: int
) -> BatchHeader:
    """What a client sent for one partition must be exactly one sound batch; everything else is refused.

    `earliest_ms` and `latest_ms` bound the timestamps that the topic accepts.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise RequestError(ErrorCode.INVALID_RECORD, "The partition's data holds no whole record batch.")
    header = read_header(batch)
    (base_offset, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
     producer_id, producer_epoch, base_sequence, count) = header  # fmt: skip
    if magic != 2:
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"Record batches must have magic 2; this one has {magic}."
        )
    if length + LENGTH_END != size:
        if 0 <= length + LENGTH_END < size:
            raise RequestError(ErrorCode.INVALID_RECORD, "One batch per partition and request, please.")
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, "The batch is cut short.")
    if size > max_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {size} bytes; the topic takes up to {max_bytes} (max.message.bytes).",
        )
    if crc32c(batch[CRC_START:]) != crc:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, "The batch fails its CRC.")
    if base_offset != 0:
        raise RequestError(ErrorCode.INVALID_RECORD, f"Base offset {base_offset} must be 0 in a request.")
    if count <= 0 or last_offset_delta + 1 != count:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"Record count {count} does not fit the last offset delta {last_offset_delta}.",
        )
    codec = attributes & CODEC_MASK
    if codec >= CODEC_COUNT or (codec == ZSTD and not zstd_allowed):
        raise RequestError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression type {codec} is not known to this version."
        )
    if count * RECORD_SIZE_MIN > (size - HEADER_SIZE) * _EXPANSION_MAX[codec]:
        raise RequestError(ErrorCode.INVALID_RECORD, f"{count} records cannot fit in {size} bytes.")
    if attributes & CONTROL:
        raise RequestError(ErrorCode.INVALID_RECORD, "Clients may not write control batches.")
    if producer_id != NO_PRODUCER_ID:
        if producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
            raise RequestError(
                ErrorCode.INVALID_RECORD, "A producer id needs a valid epoch and sequence number."
            )
    elif attributes & TRANSACTIONAL:
        raise RequestError(ErrorCode.INVALID_RECORD, "A transactional batch needs a producer id.")
    if max_timestamp > latest_ms or (base_timestamp != NO_TIMESTAMP and base_timestamp < earliest_ms):
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps {base_timestamp} to {max_timestamp} are outside what the topic accepts "
            "(message.timestamp.before.max.ms, message.timestamp.after.max.ms).",
        )
    return header


def assign_offsets(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log, in the buffer it arrived in. Outside the CRC."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, 12, leader_epoch)


def set_append_time(batch: memoryview, attributes: int, now_ms: int) -> None:
    """`message.timestamp.type=LogAppendTime`: the broker's time stands for every record's."""
    _INT16.pack_into(batch, 21, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(batch, 35, now_ms)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(batch[CRC_START:]))


def set_create_time(batch: memoryview, attributes: int) -> None:
    """A client's LogAppendTime bit means nothing in a topic that keeps the producer's own times."""
    _INT16.pack_into(batch, 21, attributes & ~LOG_APPEND_TIME)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(batch[CRC_START:]))
