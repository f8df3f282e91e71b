"""Produce, by hand: the request with views of the payload, the response as one buffer.

Byte for byte what the generated codec reads and writes (a test compares them for every version), at less
than half its cost. A payload is never copied: its view lives as long as the caller keeps the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from flintmq.errors import ProtocolError
from flintmq.protocol.leader_hints import NodeEndpoint, append_current_leader, append_endpoints
from flintmq.protocol.primitives import (
    REQUEST_ENTRIES_MAX,
    UNKNOWN_TAGS_MAX,
    MalformedError,
    skip_tags,
    string_size_rest,
)
from flintmq.records.varint import append_unsigned, read_unsigned_rest

FIRST_FLEXIBLE: Final = 9
FIRST_LEADERS: Final = 10
FIRST_TOPIC_IDS: Final = 13

PartitionBatch = tuple[int, memoryview | None]
"""Partition index and its records."""
TopicBatches = tuple[str | bytes, list[PartitionBatch]]
"""Topic name (or id, from version 13 on) and its partitions."""

_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_SIZE: Final = struct.Struct(">ii")


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[TopicBatches]
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducedPartition:
    """The response for one partition."""

    __slots__ = (
        "append_time_ms", "base_offset", "current_leader", "error_code", "error_message", "partition",
        "record_errors", "start_offset",
    )  # fmt: skip

    def __init__(
        self,
        partition: int,
        error_code: int = 0,
        base_offset: int = -1,
        append_time_ms: int = -1,
        start_offset: int = -1,
        error_message: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.start_offset = start_offset
        self.error_message = error_message
        self.record_errors = record_errors
        """Which records of the batch are to blame, and why (KIP-467)."""
        self.current_leader = current_leader
        """The leader and its epoch, for a client that asked another broker (KIP-951)."""


def decode_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The request whose body begins at `position` and ends with the frame."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(frame, position, version)
        return _decode_old(frame, position)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError, MalformedError) as error:
        raise ProtocolError(f"ProduceRequest version {version}: {error}") from error


def _decode_old(frame: memoryview, position: int) -> ProduceRequest:
    size: int
    acks: int
    timeout_ms: int
    topic_count: int
    count: int
    index: int
    (size,) = _INT16.unpack_from(frame, position)
    position += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(frame[position : position + size], "utf-8")
        position += size
    elif size != -1:
        raise MalformedError("a transactional id of negative length")
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    end = len(frame)
    topics: list[TopicBatches] = []
    entries = _plausible(topic_count, end - position)
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(frame, position)
        if size < 0:
            raise MalformedError("a topic without a name")
        position += 2 + size
        name = str(frame[position - size : position], "utf-8")
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
        partitions: list[PartitionBatch] = []
        entries = _plausible(count, end - position, entries)
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            if size < 0:
                if size != -1:
                    raise MalformedError("records of negative length")
                partitions.append((index, None))
                continue
            if size > end - position:
                raise MalformedError("records reach past the end")
            partitions.append((index, frame[position : position + size]))
            position += size
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(frame: memoryview, position: int, version: int) -> ProduceRequest:
    acks: int
    timeout_ms: int
    index: int
    end = len(frame)
    by_id = version >= FIRST_TOPIC_IDS
    size = frame[position]
    position += 1
    if size > 127:
        size, position = string_size_rest(frame, size, position)
    transactional_id = None
    if size:
        position += size - 1
        transactional_id = str(frame[position - size + 1 : position], "utf-8")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = _count(frame, position + 6)
    topics: list[TopicBatches] = []
    entries = _plausible(topic_count, end - position)
    for _ in range(topic_count):
        topic: str | bytes
        if by_id:
            topic = bytes(frame[position : position + 16])
            position += 16
        else:
            size = frame[position]
            position += 1
            if size > 127:
                size, position = string_size_rest(frame, size, position)
            if not size:
                raise MalformedError("a topic without a name")
            position += size - 1
            topic = str(frame[position - size + 1 : position], "utf-8")
        count, position = _count(frame, position)
        partitions: list[PartitionBatch] = []
        entries = _plausible(count, end - position, entries)
        for _ in range(count):
            (index,) = _INT32.unpack_from(frame, position)
            size = frame[position + 4]
            position += 5
            if size > 127:
                size, position = read_unsigned_rest(frame, size, position)
            if size == 0:
                partitions.append((index, None))
            else:
                size -= 1
                if size >= end - position:
                    raise MalformedError("records reach past the end")
                partitions.append((index, frame[position : position + size]))
                position += size
            if frame[position]:
                entries = _with_tags(frame[position], entries)
            position = _tags(frame, position, end)
        if frame[position]:
            entries = _with_tags(frame[position], entries)
        position = _tags(frame, position, end)
        topics.append((topic, partitions))
    _tags(frame, position, end)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _count(frame: memoryview, position: int) -> tuple[int, int]:
    """The count of a compact array, and the position after it."""
    count = frame[position]
    position += 1
    if count > 127:
        count, position = read_unsigned_rest(frame, count, position)
    if not count:
        raise MalformedError("an array that must not be null")
    return count - 1, position


def _plausible(count: int, left: int, entries: int = 0) -> int:
    """All entries so far, if this count is backed by at least a byte for each and they are not too many."""
    if not 0 <= count <= left:
        raise MalformedError(f"an array of {count} entries in {left} bytes")
    return _bounded(entries + count)


def _with_tags(first: int, entries: int) -> int:
    """The same with tagged fields, whose count begins with this byte: a longer one stands for the most."""
    return _bounded(entries + (first if first < 128 else UNKNOWN_TAGS_MAX))


def _bounded(entries: int) -> int:
    if entries > REQUEST_ENTRIES_MAX:
        raise MalformedError(f"more than {REQUEST_ENTRIES_MAX} entries in one request")
    return entries


def _tags(frame: memoryview, position: int, end: int) -> int:
    count = frame[position]
    return skip_tags(frame, position + 1, count, end) if count else position + 1


# ---- the response

_PARTITION_3: Final = struct.Struct(">ihqq")
_PARTITION_5: Final = struct.Struct(">ihqqq")
# No record errors, no message, no tags: how nearly every answer ends.
_PARTITION_8: Final = struct.Struct(">ihqqqih")
_PARTITION_9: Final = struct.Struct(">ihqqqBBB")


def encode_response(
    out: bytearray,
    version: int,
    topics: list[tuple[str | bytes, list[ProducedPartition]]],
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint] = (),
) -> None:
    """Append the response's body to `out`, which holds its header. `endpoints` are those of the leaders named."""
    if version >= FIRST_FLEXIBLE:
        _encode_flexible(out, version, topics, throttle_ms, endpoints if version >= FIRST_LEADERS else ())
        return
    out += _INT32.pack(len(topics))
    for topic, partitions in topics:
        name = topic.encode() if isinstance(topic, str) else topic
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(partitions))
        for one in partitions:
            index, error, base_offset = one.partition, one.error_code, one.base_offset
            if version >= 8 and one.error_message is None and not one.record_errors:
                out += _PARTITION_8.pack(
                    index, error, base_offset, one.append_time_ms, one.start_offset, 0, -1
                )
            elif version >= 5:
                out += _PARTITION_5.pack(index, error, base_offset, one.append_time_ms, one.start_offset)
                if version >= 8:
                    out += _INT32.pack(len(one.record_errors))
                    for at, why in one.record_errors:
                        out += _INT32.pack(at)
                        _write_text(out, why)
                    _write_text(out, one.error_message)
            else:
                out += _PARTITION_3.pack(index, error, base_offset, one.append_time_ms)
    out += _INT32.pack(throttle_ms)


def _encode_flexible(
    out: bytearray,
    version: int,
    topics: list[tuple[str | bytes, list[ProducedPartition]]],
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> None:
    append_unsigned(out, len(topics) + 1)
    for topic, partitions in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            append_unsigned(out, len(name) + 1)
            out += name
        append_unsigned(out, len(partitions) + 1)
        for one in partitions:
            index, error, base_offset = one.partition, one.error_code, one.base_offset
            if not error:
                out += _PARTITION_9.pack(
                    index, error, base_offset, one.append_time_ms, one.start_offset, 1, 0, 0
                )
                continue
            out += _PARTITION_5.pack(index, error, base_offset, one.append_time_ms, one.start_offset)
            append_unsigned(out, len(one.record_errors) + 1)
            for at, why in one.record_errors:
                out += _INT32.pack(at)
                _write_compact_text(out, why)
                out.append(0)
            _write_compact_text(out, one.error_message)
            if one.current_leader is None or version < FIRST_LEADERS:
                out.append(0)
            else:
                out.append(1)
                append_current_leader(out, 0, one.current_leader)
        out.append(0)
    out += _INT32.pack(throttle_ms)
    append_endpoints(out, endpoints)


def _write_text(out: bytearray, text: str | None) -> None:
    data = None if text is None else text.encode()
    out += _INT16.pack(-1 if data is None else len(data)) + (data or b"")


def _write_compact_text(out: bytearray, text: str | None) -> None:
    data = None if text is None else text.encode()
    append_unsigned(out, 0 if data is None else len(data) + 1)
    out += data or b""
