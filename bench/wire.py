"""A socket that speaks the protocol: whole frames out, whole frames in, with little work on the client's side.

Invariant: a view that `read` returned is good until the next `read` on that connection. Answers are matched to
requests by order alone, as the protocol promises; `call` checks the correlation id.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Final, TypeVar

from flintmq.protocol.codec import decode, encode_into
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import FIRST_FLEXIBLE, response_is_flexible

TIMEOUT_S: Final = 60.0
CLIENT_ID: Final = b"bench"

_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ihhih")
_BUFFER_BYTES: Final = 64 * 1024

M = TypeVar("M", bound=Message)


def frame(request: Message, version: int, correlation_id: int = 0) -> bytearray:
    """The whole request with its length in front, ready for the socket."""
    out = bytearray(_HEADER.pack(0, request.api_key, version, correlation_id, len(CLIENT_ID)))
    out += CLIENT_ID
    if version >= FIRST_FLEXIBLE[request.api_key]:
        out.append(0)
    encode_into(request, version, out)
    _INT32.pack_into(out, 0, len(out) - _INT32.size)
    return out


def body_of(answer: memoryview, response: type[M], version: int) -> M:
    """The message in a frame that `read` returned."""
    flexible = response_is_flexible(response.api_key, version)
    return decode(response, answer, version, _INT32.size + flexible)[0]


class Connection:
    def __init__(
        self,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        buffer_bytes: int = _BUFFER_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self.send = self._socket.sendall
        self._view = memoryview(bytearray(buffer_bytes))
        self._start = self._end = 0
        self._calls = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cipher(self) -> str | None:
        """The cipher suite of TLS; None in plain text."""
        agreed = self._socket.cipher() if isinstance(self._socket, ssl.SSLSocket) else None
        return None if agreed is None else agreed[0]

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> memoryview:
        """The next answer, from its correlation id on."""
        self._fill(_INT32.size)
        (size,) = _INT32.unpack_from(self._view, self._start)
        self._fill(_INT32.size + size)
        start = self._start + _INT32.size
        self._start = start + size
        return self._view[start : self._start]

    @property
    def has_answer(self) -> bool:
        """Whether `read` would return without the socket, which `select` cannot see."""
        held = self._end - self._start
        return held >= _INT32.size and held >= _INT32.size + _INT32.unpack_from(self._view, self._start)[0]

    def call(self, request: Message, response: type[M], version: int) -> M:
        self._calls += 1
        self.send(frame(request, version, self._calls))
        answer = self.read()
        if _INT32.unpack_from(answer)[0] != self._calls:
            raise ConnectionError("an answer to another request")
        return body_of(answer, response, version)

    def _fill(self, count: int) -> None:
        """Have at least `count` bytes after the start."""
        if self._end - self._start >= count:
            return
        if self._start + count > len(self._view):
            rest = self._view[self._start : self._end]
            room = self._view if count <= len(self._view) else memoryview(bytearray(2 * count))
            room[: len(rest)] = rest
            self._view, self._start, self._end = room, 0, len(rest)
        while self._end - self._start < count:
            received = self._socket.recv_into(self._view[self._end :])
            if not received:
                raise ConnectionError("the broker closed the connection")
            self._end += received
