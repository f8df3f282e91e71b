"""One conversation with a broker, without the socket: requests to bytes, bytes to answers. Pure.

    wire.request(message, version)  →  bytes to send
    wire.receive(bytes)             ←  whatever arrived
    wire.next_answer()              →  the next whole answer, or None

Invariant: answers come in the order of their requests, or the conversation is over (ProtocolError). A frame
takes memory only as its bytes arrive.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

from flintmq.client.versions import decode_api_versions
from flintmq.effects import Buffer
from flintmq.errors import ProtocolError
from flintmq.protocol.compiler import decode, encode_into
from flintmq.protocol.header import API_VERSIONS_KEY, FIRST_FLEXIBLE, response_is_flexible
from flintmq.protocol.messages import response_of
from flintmq.protocol.primitives import MalformedError, skip_tags
from flintmq.protocol.structures import Message

ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")
_CORRELATION_MAX: Final = 0x7FFFFFFF


class _Awaited(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


class Wire:
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._next_id = 0
        self._awaited: deque[_Awaited] = deque()
        self._buffer = bytearray()

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._awaited)

    def request(self, message: Message, version: int, *, answered: bool = True) -> bytes:
        """The frame to send. `answered=False` for a produce request with acks 0, which has no answer."""
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & _CORRELATION_MAX
        out = bytearray(_HEADER.pack(0, message.api_key, version, correlation_id, len(self._client_id)))
        out += self._client_id
        if version >= FIRST_FLEXIBLE[message.api_key]:
            out.append(0)
        encode_into(message, version, out)
        _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
        if answered:
            self._awaited.append(_Awaited(correlation_id, message.api_key, version))
        return bytes(out)

    def receive(self, data: Buffer) -> None:
        self._buffer += data

    def next_answer(self) -> Message | None:
        if len(self._buffer) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer)
        if not _SIZE.size <= size <= ANSWER_BYTES_MAX:
            raise ProtocolError(
                f"an answer of {size} bytes: what listens there does not speak Kafka's protocol"
            )
        end = _SIZE.size + size
        if len(self._buffer) < end:
            return None
        # A copy of its own: the records of a fetch are views of it and outlive this buffer.
        frame = bytes(memoryview(self._buffer)[_SIZE.size : end])
        del self._buffer[:end]
        return self._read(frame)

    def _read(self, frame: bytes) -> Message:
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
        answer, _ = decode(response_of(expected.api_key), frame, expected.version, position)
        return answer


def _after_tags(frame: bytes, position: int) -> int:
    try:
        count = frame[position]
        return skip_tags(frame, position + 1, count, len(frame)) if count else position + 1
    except (IndexError, MalformedError) as error:
        raise ProtocolError(f"the tagged fields of an answer's header: {error}") from error
