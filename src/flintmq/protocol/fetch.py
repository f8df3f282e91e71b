"""Fetch, by hand: the request as plain tuples, the response as buffers with the log's own bytes between them.

Byte for byte what the generated codec reads and writes (a test compares them for every version). The
records of a partition are whatever buffer the caller has, a range of a file or a buffer: only their size
is written here, so that the bytes themselves can go from the page cache to the socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from flintmq.protocol.codec import decoder
from flintmq.protocol.leader_hints import NodeEndpoint, append_current_leader, append_endpoints
from flintmq.protocol.messages import FetchRequest
from flintmq.records.varint import append_unsigned

FIRST_SESSIONS: Final = 7
FIRST_FLEXIBLE: Final = 12
FIRST_TOPIC_IDS: Final = 13
FIRST_ENDPOINTS: Final = 16

INLINE_BYTES_MAX: Final = 16 * 1024
"""Up to this size, copying a partition's records into the response's buffer is cheaper than a call to send them."""
INLINED_BYTES_MAX: Final = 1024 * 1024
"""What one response may so copy in all: a client that does not take it must not cost much memory."""


class SizedRecords(Protocol):
    size: int

    def read(self) -> bytes: ...


R = TypeVar("R", bound=SizedRecords)


class FetchedPartition(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    records: SizedRecords | None = None
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer ids and first offsets of aborted transactions; None unless read_committed."""
    diverging: tuple[int, int] | None = None
    """The largest epoch that both sides know, and where it ends here (KIP-595)."""
    current_leader: tuple[int, int] | None = None
    """The leader and its epoch, for a client that asked another broker (KIP-951)."""
    preferred_replica: int = -1
    """The replica that a consumer should rather fetch from (KIP-392)."""


def decode_request(frame: memoryview, position: int, version: int) -> FetchRequest:
    """Fetch requests are small and mostly incremental: the generated decoder serves them."""
    return decoder(FetchRequest, version)(frame, position)[0]


_HEAD_4: Final = struct.Struct(">ii")
_HEAD_7: Final = struct.Struct(">ihii")
_HEAD_12: Final = struct.Struct(">ihi")
_PARTITION_4: Final = struct.Struct(">ihqq")
_PARTITION_5: Final = struct.Struct(">ihqqq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")
_DIVERGING_TAG: Final = bytes((0, 13))
_CURRENT_LEADER_TAG: Final = 1
NO_PREFERRED_REPLICA: Final = _INT32.pack(-1)


def encode_response(
    out: bytearray,
    version: int,
    *,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[FetchedPartition]]],
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytearray | SizedRecords]:
    """Return the response as buffers in their order. `out` holds the size (still to be set) and the header.

    `endpoints` are those of the leaders that `topics` name.
    """
    if version >= FIRST_FLEXIBLE:
        if version < FIRST_ENDPOINTS:
            endpoints = ()
        return _encode_flexible(out, throttle_ms, error_code, session_id, topics, endpoints)
    if version >= FIRST_SESSIONS:
        out += _HEAD_7.pack(throttle_ms, error_code, session_id, len(topics))
    else:
        out += _HEAD_4.pack(throttle_ms, len(topics))
    buffers: list[bytearray | SizedRecords] = [out]
    room = INLINED_BYTES_MAX
    for topic, partitions in topics:
        name = topic.encode() if isinstance(topic, str) else topic
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(partitions))
        for partition in partitions:
            index, error, high_watermark, stable, start, records, aborted, _, _, preferred = partition
            if version >= 5:
                out += _PARTITION_5.pack(index, error, high_watermark, stable, start)
            else:
                out += _PARTITION_4.pack(index, error, high_watermark, stable)
            if aborted is None:
                out += _INT32.pack(-1)
            else:
                out += _INT32.pack(len(aborted)) + b"".join(_ABORTED.pack(*pair) for pair in aborted)
            if version >= 11:
                out += NO_PREFERRED_REPLICA if preferred < 0 else _INT32.pack(preferred)
            if records is None:
                out += _INT32.pack(0)
                continue
            out += _INT32.pack(records.size)
            if records.size <= INLINE_BYTES_MAX and room > 0:
                room -= records.size
                out += _copied(records)
            else:
                out = _put(buffers, records)
    if not out:
        buffers.pop()
    return buffers


def _encode_flexible(
    out: bytearray,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str | bytes, Sequence[FetchedPartition]]],
    endpoints: Sequence[NodeEndpoint],
) -> list[bytearray | SizedRecords]:
    out += _HEAD_12.pack(throttle_ms, error_code, session_id)
    append_unsigned(out, len(topics) + 1)
    buffers: list[bytearray | SizedRecords] = [out]
    room = INLINED_BYTES_MAX
    for topic, partitions in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            append_unsigned(out, len(name) + 1)
            out += name
        append_unsigned(out, len(partitions) + 1)
        for partition in partitions:
            index, error, high_watermark, stable, start, records, aborted, diverging, leader, preferred = (
                partition
            )
            out += _PARTITION_5.pack(index, error, high_watermark, stable, start)
            if aborted is None:
                out.append(0)
            else:
                append_unsigned(out, len(aborted) + 1)
                for pair in aborted:
                    out += _ABORTED.pack(*pair)
                    out.append(0)
            out += NO_PREFERRED_REPLICA if preferred < 0 else _INT32.pack(preferred)
            if records is None:
                out.append(1)
            else:
                append_unsigned(out, records.size + 1)
                if records.size <= INLINE_BYTES_MAX and room > 0:
                    room -= records.size
                    out += _copied(records)
                else:
                    out = _put(buffers, records)
            if diverging is None and leader is None:
                out.append(0)
            else:
                _append_tags(out, diverging, leader)
        out.append(0)
    append_endpoints(out, endpoints)
    return buffers


def _append_tags(out: bytearray, diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> None:
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING_TAG + _EPOCH_END.pack(*diverging)
        out.append(0)
    if leader is not None:
        append_current_leader(out, _CURRENT_LEADER_TAG, leader)


def _copied(records: SizedRecords) -> bytes:
    data = records.read()
    if len(data) != records.size:
        raise OSError(f"a log file gave {len(data)} of {records.size} bytes")
    return data


def _put(buffers: list[bytearray | SizedRecords], records: SizedRecords) -> bytearray:
    """Add the records as a buffer of their own; return the buffer to go on in."""
    buffers.append(records)
    following = bytearray()
    buffers.append(following)
    return following


def size_of(buffers: Iterable[bytearray | SizedRecords]) -> int:
    return sum(len(buffer) if isinstance(buffer, bytearray) else buffer.size for buffer in buffers)
