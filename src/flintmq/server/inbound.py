"""The inbound half of a connection: bytes in, whole frames out.

Connections that have no frame under way share one receive buffer, which is safe because the loop fills it
and hands it over in one step; a frame that is complete in it is dispatched from there without a copy. What
is left of an unfinished frame moves into a buffer of the connection's own, which grows by no more than has
already arrived (64 KiB at least), so that a length that is only claimed costs nothing.

This module knows lengths, not requests; of these only that a frame begins with its kind, and that only one kind
has reason to be very large: records to be written.
"""

from __future__ import annotations

from typing import Final

from flintmq.errors import ProtocolError

GROWTH_MIN: Final = 64 * 1024
SHARED_BYTES: Final = 256 * 1024
UNLIMITED: Final = 1 << 31
_LENGTH: Final = 4
_KIND_END: Final = _LENGTH + 2
_PRODUCE: Final = b"\0\0"


class FrameBuffer:
    """An unfinished frame of one connection, with its length prefix."""

    __slots__ = ("_measured", "data", "filled", "frame_size_max", "ordinary_size_max", "total", "view")

    def __init__(self, frame_size_max: int, ordinary_size_max: int = UNLIMITED) -> None:
        self.frame_size_max = frame_size_max
        self.ordinary_size_max = ordinary_size_max
        self._measured = False
        self.data = bytearray()
        self.view = memoryview(self.data)
        self.filled = 0
        self.total = 0
        """Bytes of the frame with its prefix, or 0 while the prefix itself is unfinished."""

    def start(self, rest: memoryview) -> None:
        """`rest` is the beginning of a frame that is not complete."""
        self.filled = 0
        self.total = 0
        self._measured = False
        self._room(max(len(rest), _LENGTH))
        self.view[: len(rest)] = rest
        self.filled = len(rest)
        self._measure()

    def _measure(self) -> None:
        """As soon as enough is there to judge: the length, and the kind of a frame that is long."""
        if self.filled < _LENGTH:
            return
        size = frame_size(self.view, 0, self.frame_size_max)
        self.total = size + _LENGTH
        if size <= self.ordinary_size_max:
            self._measured = True
        elif self.filled >= _KIND_END:
            self._measured = True
            if bytes(self.view[_LENGTH:_KIND_END]) != _PRODUCE:
                raise ProtocolError(
                    f"a request of {size} bytes that writes no records; up to {self.ordinary_size_max} are taken "
                    "(flint.request.max.bytes)"
                )

    def wanted_capacity(self) -> int:
        """How large the buffer must become before more can be received."""
        if not self.total:
            return _LENGTH
        return min(self.total, max(GROWTH_MIN, 2 * self.filled))

    def needs_room(self) -> bool:
        return self.filled >= min(len(self.data), self.total or _LENGTH)

    def _room(self, capacity: int) -> None:
        """A new buffer: the old one may be held by the loop, and resizing it would raise BufferError."""
        if len(self.data) >= capacity:
            return
        data = bytearray(capacity)
        data[: self.filled] = self.view[: self.filled]
        self.data = data
        self.view = memoryview(data)

    def grow(self) -> None:
        self._room(self.wanted_capacity())

    def writable(self) -> memoryview:
        """Where the next bytes go: never past the end of the frame."""
        return self.view[self.filled : self.total or _LENGTH]

    def received(self, count: int) -> bool:
        """True if the frame is complete."""
        self.filled += count
        if not self._measured:
            self._measure()
        return self.total > 0 and self.filled == self.total

    def frame(self) -> memoryview:
        return self.view[_LENGTH : self.total]

    def whole(self) -> memoryview:
        """The frame with its length prefix."""
        return self.view[: self.total]

    def clear(self) -> None:
        """Give the memory back."""
        self.data = bytearray()
        self.view = memoryview(self.data)
        self.filled = self.total = 0


def frame_size(data: memoryview, position: int, limit: int) -> int:
    """The length at `position`, if it is one that a frame may have."""
    size = int.from_bytes(data[position : position + _LENGTH], "big", signed=True)
    if size <= 0 or size > limit:
        if bytes(data[position : position + 3]) in (b"GET", b"POS", b"HEA", b"PUT", b"OPT", b"DEL"):
            raise ProtocolError("this is HTTP, and the port speaks the Kafka protocol")
        if data[position] == 0x16 and data[position + 1] == 0x03:
            raise ProtocolError("this is TLS, and the listener is plaintext")
        raise ProtocolError(f"a frame of {size} bytes; up to {limit} are taken (socket.request.max.bytes)")
    return size
