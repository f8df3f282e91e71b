"""One conversation with a broker, without the socket: requests to bytes, bytes to answers. Pure.

    wire.request(message, version)  →  bytes to send
    wire.room()                     →  where to put what arrives
    wire.received(count)            ←  so many bytes were put there
    wire.next_response()            →  the next whole response, or None

Invariant: answers come in the order of their requests, or the conversation is over (ProtocolError). A large answer is
received where it stays, and takes memory only in proportion to what has arrived of it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.client.api_versions import decode_api_versions
from flintmq.effects import Buffer
from flintmq.errors import ProtocolError
from flintmq.protocol.codec import decode, encode_into
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import API_VERSIONS_KEY, FIRST_FLEXIBLE, response_is_flexible
from flintmq.protocol.messages import response_of
from flintmq.protocol.primitives import MalformedError, skip_tags

RESPONSE_BYTES_MAX: Final = 512 * 1024 * 1024

_ROOM_BYTES: Final = 64 * 1024
"""For answers that are no larger; they are copied out of it."""
_GROWTH: Final = 128
"""A larger answer gets a buffer of its own, so many times what has arrived of it at most."""

Allocate = Callable[[int], bytearray | memoryview]
"""Returns a buffer of the given size, with any contents; `bytearray` spends a pass on filling it with zeros."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")
_CORRELATION_MAX: Final = 0x7FFFFFFF


class _Awaited(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


class ClientProtocol:
    def __init__(self, client_id: str, allocate: Allocate = bytearray) -> None:
        """`allocate` makes the buffers of large answers."""
        self._client_id = client_id.encode()
        self._allocate = allocate
        self._next_id = 0
        self._awaited: deque[_Awaited] = deque()
        self._buffer: bytearray | memoryview = bytearray(_ROOM_BYTES)
        self._filled = 0

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._awaited)

    def request(self, message: Message, version: int, *, expects_response: bool = True) -> bytes:
        """The frame to send. `expects_response=False` for a produce request with acks 0."""
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & _CORRELATION_MAX
        out = bytearray(_HEADER.pack(0, message.api_key, version, correlation_id, len(self._client_id)))
        out += self._client_id
        if version >= FIRST_FLEXIBLE[message.api_key]:
            out.append(0)
        encode_into(message, version, out)
        _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
        if expects_response:
            self._awaited.append(_Awaited(correlation_id, message.api_key, version))
        return bytes(out)

    def room(self) -> memoryview:
        """Where the next bytes go: never behind the end of an answer that has a buffer of its own."""
        if self._filled == len(self._buffer):
            self._grow()
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> None:
        self._filled += count

    def next_response(self) -> Message | None:
        end = self._end()
        if not end or self._filled < end:
            return None
        if end == len(self._buffer):
            # Nothing else is in it: the records of a fetch are views of it, and it is theirs now.
            buffer, self._buffer, self._filled = self._buffer, bytearray(_ROOM_BYTES), 0
            return self._read(memoryview(buffer)[_SIZE.size :])
        view = memoryview(self._buffer)
        frame = bytes(view[_SIZE.size : end])
        view[: self._filled - end] = view[end : self._filled]
        self._filled -= end
        return self._read(frame)

    def _end(self) -> int:
        """Where the answer that has begun ends; 0 while that is not known."""
        if self._filled < _SIZE.size:
            return 0
        (size,) = _SIZE.unpack_from(self._buffer)
        if not _SIZE.size <= size <= RESPONSE_BYTES_MAX:
            raise ProtocolError(
                f"an answer of {size} bytes: what listens there does not speak Kafka's protocol"
            )
        return int(_SIZE.size + size)

    def _grow(self) -> None:
        """The buffer is full and its one answer is not complete."""
        buffer = self._allocate(min(self._end(), _GROWTH * self._filled))
        buffer[: self._filled] = self._buffer
        self._buffer = buffer

    def _read(self, frame: Buffer) -> Message:
        if not self._awaited:
            raise ProtocolError("an answer that nobody asked for")
        expected = self._awaited.popleft()
        (correlation_id,) = _SIZE.unpack_from(frame)
        if correlation_id != expected.correlation_id:
            raise ProtocolError(f"the answer {correlation_id} came where {expected.correlation_id} was next")
        position = _SIZE.size
        if expected.api_key == API_VERSIONS_KEY:
            return decode_api_versions(frame, expected.version, position)
        if response_is_flexible(expected.api_key, expected.version):
            position = _after_tags(frame, position)
        response, _ = decode(response_of(expected.api_key), frame, expected.version, position)
        return response


def _after_tags(frame: Buffer, position: int) -> int:
    try:
        count = frame[position]
        return skip_tags(frame, position + 1, count, len(frame)) if count else position + 1
    except (IndexError, OverflowError, MalformedError) as error:
        raise ProtocolError(f"the tagged fields of an answer's header: {error}") from error
