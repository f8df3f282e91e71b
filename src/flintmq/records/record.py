"""The records inside a batch (magic 2): reading, checking and writing them.

    length · attributes (1) · timestamp delta · offset delta · key · value · headers

All but the attributes are zigzag varints and byte strings that carry their length as one; -1 is null.

Invariant: a record is read only within its own length and a payload only as exactly as many records as
the batch counts; whatever does not fit is refused as INVALID_RECORD, naming the record. The broker's hot
path never comes here. This module must not know logs or topics, and leaves a batch's CRC to `batch`.
It is plain typed functions over `bytes`, so that it can be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_SIZE_MIN,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from flintmq.records.checksum import crc32c
from flintmq.records.compression import Buffer, Codec, compress, decompress
from flintmq.records.varint import append_varint, read_varint

Header = tuple[str, bytes | None]
NewRecord = tuple[bytes | None, bytes | None, int, Sequence[Header]]
"""Key, value, timestamp and headers of a record that has no offset yet."""

MAGIC: Final = 2

CHECKED_ENTRIES_MAX: Final = 1_000_000
"""Records and headers of one batch that are looked at: they may be as small as two bytes, and hundreds of
millions of them fit into a small compressed batch."""
FAULTS_TOLD_MAX: Final = 1000
"""Records at fault that a producer is told of by number."""

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# Header keys are UTF-8 by agreement only: bytes that are not survive the way in and out again.
_KEY_ERRORS: Final = "surrogateescape"


class RecordError(RequestError):
    """Records that make their batch unacceptable: `faults` names their places in the batch, from 0 (KIP-467)."""

    def __init__(self, code: ErrorCode, index: int, why: str) -> None:
        super().__init__(code, f"Record {index} of the batch {why}.")
        self.index = index
        self.faults = [(index, why)]


class Record:
    """One record at its place in the log. Values are never changed once it is made."""

    __slots__ = ("attributes", "headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
        attributes: int = 0,
    ) -> None:
        self.offset: Final = offset
        self.timestamp: Final = timestamp
        self.key: Final = key
        self.value: Final = value
        self.headers: Final = headers
        self.attributes: Final = attributes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
            and self.attributes == other.attributes
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r}, attributes={self.attributes})"
        )


class CheckedRecords(NamedTuple):
    """What a check of all records found out: the newest timestamp, and the first record that has it."""

    max_timestamp: int
    offset_delta: int


def walk(
    payload: Buffer,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp: int = 0,
    append_time: int | None = None,
) -> Iterator[Record]:
    """The `count` records of an uncompressed payload, one by one; `append_time` stands for their own times.

    A payload that does not hold exactly these is refused when the walk gets there.
    """
    # Bytes, because slices of them are the keys and values themselves; one copy is cheaper than two views.
    data = payload if isinstance(payload, bytes) else bytes(payload)
    _check_size(data, count)
    position = 0
    for index in range(count):
        attributes, timestamp, offset_delta, key, value, headers, _, position = _record_at(
            data, position, base_timestamp, index, with_content=True
        )
        if append_time is not None:
            timestamp = append_time
        yield Record(base_offset + offset_delta, timestamp, key, value, headers, attributes)
    _check_end(data, position, count)


def records_of(batch: Buffer, *, limit: int) -> Iterator[Record]:
    """The records of one whole batch, decompressed to at most `limit` bytes."""
    header = _header_of(batch)
    return walk(
        _payload(batch, header, limit),
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.attributes & LOG_APPEND_TIME else None,
    )


def payload_of(batch: Buffer, *, limit: int) -> bytes | memoryview:
    """The uncompressed records of one whole batch, as bytes of at most `limit`."""
    return _payload(batch, _header_of(batch), limit)


def check_records(
    payload: Buffer,
    count: int,
    *,
    base_timestamp: int,
    require_keys: bool = False,
    earliest_ms: int | None = None,
    latest_ms: int | None = None,
) -> CheckedRecords:
    """Look at every record of an uncompressed payload as it arrives from a producer.

    Offset deltas count up from 0, keys are there where the topic is compacted, and timestamps lie between
    `earliest_ms` and `latest_ms`, where given; a record without a time is never out of range. A record that
    cannot be read ends the check; missing keys and wrong times are told of all records, up to a number. Too many
    records or headers are MESSAGE_TOO_LARGE, upon which a producer splits its batch.
    """
    data = _uncopied(payload)
    _check_size(data, count)
    position = 0
    headers_left = CHECKED_ENTRIES_MAX - count
    if headers_left < 0:
        _too_many()
    failure: RecordError | None = None
    newest = NO_TIMESTAMP
    newest_delta = 0
    for index in range(count):
        _, timestamp, offset_delta, key, _, _, header_count, position = _record_at(
            data, position, base_timestamp, index, with_content=False, headers_max=headers_left
        )
        headers_left -= header_count
        if offset_delta != index:
            raise RecordError(ErrorCode.INVALID_RECORD, index, f"has the offset delta {offset_delta}")
        if require_keys and key is None:
            failure = _add_fault(
                failure, ErrorCode.INVALID_RECORD, index, "has no key, which a compacted topic needs"
            )
        elif timestamp != NO_TIMESTAMP and (
            (earliest_ms is not None and timestamp < earliest_ms)
            or (latest_ms is not None and timestamp > latest_ms)
        ):
            failure = _add_fault(
                failure,
                ErrorCode.INVALID_TIMESTAMP,
                index,
                f"has the timestamp {timestamp}, outside {earliest_ms} to {latest_ms}",
            )
        if timestamp > newest:
            newest = timestamp
            newest_delta = offset_delta
    _check_end(data, position, count)
    if failure is not None:
        raise failure
    return CheckedRecords(newest, newest_delta)


def _add_fault(failure: RecordError | None, code: ErrorCode, index: int, why: str) -> RecordError:
    """The failure of the batch with one more record in it; a missing key weighs more than a wrong time."""
    if failure is None:
        return RecordError(code, index, why)
    if len(failure.faults) < FAULTS_TOLD_MAX:
        failure.faults.append((index, why))
    if code is ErrorCode.INVALID_RECORD:
        failure.code = code
    return failure


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> None:
    """Write one record; its attributes have no meaning yet and are 0."""
    body = bytearray(1)
    if timestamp_delta or offset_delta:
        append_varint(body, timestamp_delta)
        append_varint(body, offset_delta)
    else:
        body += b"\0\0"
    _append_bytes(body, key)
    _append_bytes(body, value)
    append_varint(body, len(headers))
    for name, content in headers:
        _append_bytes(body, name.encode("utf-8", _KEY_ERRORS))
        _append_bytes(body, content)
    append_varint(out, len(body))
    out += body


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_EPOCH,
    append_time: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch of at least one record, with consecutive offsets. `append_time` makes it LogAppendTime."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0][2]
    max_timestamp = base_timestamp
    payload = bytearray()
    for delta, (key, value, timestamp, headers) in enumerate(records):
        append_record(payload, delta, timestamp - base_timestamp, key, value, headers)
        max_timestamp = max(max_timestamp, timestamp)
    attributes = (
        int(codec)
        | (LOG_APPEND_TIME if append_time is not None else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (CONTROL if is_control else 0)
    )
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp if append_time is None else append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _sealed(header, payload if codec is Codec.NONE else compress(codec, payload, level))


def recompress(batch: Buffer, codec: Codec, level: int | None = None, *, limit: int) -> bytes:
    """The same batch with its records compressed by `codec`; they may take up to `limit` bytes unpacked."""
    header = _header_of(batch)
    return with_payload(header, _payload(batch, header, limit), codec, level)


def with_payload(header: BatchHeader, payload: Buffer, codec: Codec, level: int | None = None) -> bytes:
    """A batch with this header around a payload that is not compressed yet; length and CRC are redone.

    For who has `payload_of` a batch in hand already. A batch without records is never compressed.
    """
    if not len(payload):
        codec = Codec.NONE
    attributes = header.attributes & ~CODEC_MASK | int(codec)
    sealed = payload if codec is Codec.NONE else compress(codec, payload, level)
    return _sealed(header._replace(attributes=attributes), sealed)


def _sealed(header: BatchHeader, payload: Buffer) -> bytes:
    base_offset, _, leader_epoch, magic, _, *rest = header
    start = HEADER.pack(base_offset, HEADER_SIZE - LENGTH_END + len(payload), leader_epoch, magic, 0, *rest)
    crc = crc32c(payload, crc32c(start[CRC_START:]))
    # Joined in one step: a payload may be large.
    return b"".join((start[:CRC_POSITION], crc.to_bytes(4, "big"), start[CRC_START:], payload))


def _header_of(batch: Buffer) -> BatchHeader:
    if len(batch) < HEADER_SIZE:
        raise RequestError(ErrorCode.INVALID_RECORD, "No whole record batch.")
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch) or header.record_count < 0:
        raise RequestError(ErrorCode.INVALID_RECORD, "Not exactly one record batch of magic 2.")
    return header


def _payload(batch: Buffer, header: BatchHeader, limit: int) -> bytes | memoryview:
    compressed = memoryview(batch)[HEADER_SIZE:]
    if not header.record_count and not compressed:
        return b""  # what compaction leaves of a batch: nothing, whatever its codec was
    try:
        codec = Codec(header.codec)
    except ValueError:
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"Compression type {header.codec} is not known."
        ) from None
    return decompress(codec, compressed, limit=limit)


def _check_size(data: bytes | bytearray, count: int) -> None:
    if count < 0 or count * RECORD_SIZE_MIN > len(data):
        raise RequestError(ErrorCode.INVALID_RECORD, f"{count} records cannot be in {len(data)} bytes.")


def _check_end(data: bytes | bytearray, position: int, count: int) -> None:
    if position != len(data):
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"{len(data) - position} bytes follow the {count} records of the batch."
        )


def _uncopied(payload: Buffer) -> bytes | bytearray:
    """What a decompressed payload is a view of, for who keeps nothing of it: a copy would cost as much again."""
    whole = payload.obj if isinstance(payload, memoryview) else payload
    if isinstance(whole, bytearray) and len(whole) == len(payload):
        return whole
    return bytes(payload)


def _too_many() -> NoReturn:
    raise RequestError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The batch has more than {CHECKED_ENTRIES_MAX} records and headers; this topic has them looked at.",
    )


def _record_at(
    data: bytes | bytearray,
    position: int,
    base_timestamp: int,
    index: int,
    *,
    with_content: bool,
    headers_max: int = _INT32_MAX,
) -> tuple[int, int, int, bytes | None, bytes | None, tuple[Header, ...], int, int]:
    """Attributes, timestamp, offset delta, key, value, headers, their count, and the next record's position.

    All is checked in any case. Without `with_content` headers are not made, for many small ones take far more
    memory than their bytes, and keys and values are empty where they are there: a large one is not copied.
    """
    try:
        size, position = read_varint(data, position, 32)
        end = position + size
        if size < 0 or end > len(data):
            raise RecordError(ErrorCode.INVALID_RECORD, index, f"claims a length of {size}")
        attributes = data[position]
        timestamp_delta, position = read_varint(data, position + 1, 64)
        offset_delta, position = read_varint(data, position, 32)
        key, position = _bytes_at(data, position, end, index, with_content)
        value, position = _bytes_at(data, position, end, index, with_content)
        header_count, position = read_varint(data, position, 32)
        headers: tuple[Header, ...] = ()
        if header_count:
            if headers_max < header_count <= (end - position) // 2:
                _too_many()
            headers, position = _headers_at(data, position, end, header_count, index, with_content)
    except IndexError:
        raise RecordError(ErrorCode.INVALID_RECORD, index, "is cut short") from None
    except OverflowError:
        raise RecordError(ErrorCode.INVALID_RECORD, index, "holds a number that is too long") from None
    if position != end:
        raise RecordError(ErrorCode.INVALID_RECORD, index, "does not fill its length")
    timestamp = base_timestamp + timestamp_delta
    if offset_delta < 0 or not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise RecordError(ErrorCode.INVALID_RECORD, index, "has an impossible offset or timestamp")
    return attributes, timestamp, offset_delta, key, value, headers, header_count, position


def _bytes_at(
    data: bytes | bytearray, position: int, end: int, index: int, wanted: bool
) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position, 32)
    if size == -1:
        return None, position
    stop = position + size
    if size < 0 or stop > end:
        raise RecordError(ErrorCode.INVALID_RECORD, index, f"holds a field with a length of {size}")
    return bytes(data[position:stop]) if wanted else b"", stop


def _headers_at(
    data: bytes | bytearray, position: int, end: int, count: int, index: int, wanted: bool
) -> tuple[tuple[Header, ...], int]:
    # A header is at least two bytes, so a count is believed only as far as the record could hold it.
    if count < 0 or 2 * count > end - position:
        raise RecordError(ErrorCode.INVALID_RECORD, index, f"claims {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _bytes_at(data, position, end, index, wanted)
        if key is None:
            raise RecordError(ErrorCode.INVALID_RECORD, index, "has a header without a key")
        value, position = _bytes_at(data, position, end, index, wanted)
        if wanted:
            headers.append((key.decode("utf-8", _KEY_ERRORS), value))
    return tuple(headers), position


def _append_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(content))
        out += content
