"""The outbound pump of a connection with TLS: buffers and file ranges are gathered, encrypted and sent.

What is queued is gathered into one buffer that all connections share, file ranges by `pread`; the buffer is encrypted
as a whole and goes to the socket in one write. At most one encrypted buffer waits for the socket, so that a slow
client costs little memory. The order and the bounds are those of `Outbound`.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable
from typing import Final

from flintmq.broker.request import ResponseBuffer
from flintmq.effects import Executor
from flintmq.server.outbound import CORKED_BYTES_MAX, Outbound, WritabilityWatcher, memory_of
from flintmq.storage.segment import FileRange

GATHERED_BYTES: Final = 256 * 1024
# What one client is sent before the others have their turn: encryption takes the loop about a millisecond for it.
_TURN_BYTES: Final = 1024 * 1024
_NOTHING: Final = memoryview(b"")


class TlsOutbound(Outbound):
    __slots__ = ("_encrypted", "_gathered", "_outgoing", "_tls")

    def __init__(
        self,
        fd: int,
        *,
        gathered: memoryview,
        watcher: WritabilityWatcher,
        executor: Executor,
        abort: Callable[[], object],
        drained: Callable[[], object],
    ) -> None:
        super().__init__(fd, watcher=watcher, executor=executor, abort=abort, drained=drained)
        self._gathered = gathered
        self._tls: ssl.SSLObject | None = None
        self._outgoing = ssl.MemoryBIO()
        self._encrypted = _NOTHING

    def attach(self, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        """The handshake begins: `tls` writes to `outgoing`."""
        self._tls = tls
        self._outgoing = outgoing

    @property
    def held_bytes(self) -> int:
        return memory_of(self._queue) + len(self._encrypted)

    def send(self, buffers: list[ResponseBuffer]) -> int:
        queue = self._queue
        if self._is_corked and len(buffers) == 1 and not queue:
            buffer = buffers[0]
            if not isinstance(buffer, FileRange) and len(buffer) <= CORKED_BYTES_MAX:
                self._corked.append(buffer)
                self._corked_bytes += len(buffer)
                if self._corked_bytes > CORKED_BYTES_MAX:
                    self._push_corked()
                return len(buffer)
        if self._corked:
            self._push_corked()
        size = 0
        for buffer in buffers:
            size += buffer.size if isinstance(buffer, FileRange) else len(buffer)
            queue.append(buffer)
        self.pending_bytes += size
        if not self._watching and not self._reading:
            self._pump()
        return size

    def flush(self) -> None:
        """Send messages of TLS itself: handshake, alerts, key updates."""
        if not self._outgoing.pending:
            return
        data = self._outgoing.read()
        self.pending_bytes += len(data)
        self._encrypted = memoryview(bytes(self._encrypted) + data if len(self._encrypted) else data)
        if not self._watching and not self._reading:
            self._pump()

    def send_last(self) -> None:
        """Send the last message of TLS (close_notify or an alert) if the socket takes it at once."""
        if self._fd < 0 or not self._outgoing.pending or self.pending_bytes:
            return
        try:
            self._socket.send(self._outgoing.read())
        except OSError:
            pass

    def _pump(self) -> None:
        if self._fd < 0:
            return
        left = _TURN_BYTES
        try:
            while True:
                while len(self._encrypted):
                    sent = self._socket.send(self._encrypted)
                    self._encrypted = self._encrypted[sent:] if sent < len(self._encrypted) else _NOTHING
                    self.pending_bytes -= sent
                    self.progressed = True
                if not self._queue:
                    break
                if left <= 0:
                    # The socket takes more, but so would those of others.
                    self._wait_for_room()
                    return
                size = self._gather()
                if not size:
                    return
                left -= size
                self._encrypt(self._gathered[:size])
        except BlockingIOError:
            self._wait_for_room()
            return
        except OSError:
            self._fail()
            return
        if self._watching:
            self._watching = False
            self._watcher.remove_writer(self._duplicate)
            self._drained()

    def _encrypt(self, data: memoryview) -> None:
        assert self._tls is not None
        self._tls.write(data)
        encrypted = self._outgoing.read()
        self._encrypted = memoryview(encrypted)
        self.pending_bytes += len(encrypted) - len(data)

    def _gather(self) -> int:
        """Fill the shared buffer from the queue; return 0 if a range must be read ahead first."""
        queue, gathered = self._queue, self._gathered
        filled, room = 0, len(gathered)
        while queue and filled < room:
            buffer = queue[0]
            if isinstance(buffer, FileRange):
                if self._probed is not buffer:
                    if not self._is_warm(buffer):
                        if not filled:
                            self._read_ahead(buffer)
                        return filled
                    self._probed = buffer
                count = _read_into(buffer, gathered[filled : min(room, filled + buffer.size)])
                filled += count
                buffer.position += count
                buffer.size -= count
                if not buffer.size:
                    queue.popleft()
                    self._probed = None
            else:
                count = min(len(buffer), room - filled)
                gathered[filled : filled + count] = buffer[:count]
                filled += count
                if count == len(buffer):
                    queue.popleft()
                else:
                    queue[0] = memoryview(buffer)[count:]
        return filled

    def _forget(self) -> None:
        super()._forget()
        self._encrypted = _NOTHING


def _read_into(file_range: FileRange, target: memoryview) -> int:
    if file_range.file.fd >= 0:
        count = os.preadv(file_range.file.fd, [target], file_range.position)
    else:
        data = file_range.file.pread(len(target), file_range.position)
        count = len(data)
        target[:count] = data
    if count == 0:
        raise OSError(errno.EIO, "a log file is shorter than promised")
    return count
