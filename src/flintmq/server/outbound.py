"""The outbound half of a connection: one ordered queue of buffers and file ranges, and one pump.

The pump writes straight to the socket's descriptor while it can (the transport's own writes come a loop
turn later and cannot sendfile). When the kernel's buffer is full it goes on once a duplicate of the
descriptor is writable: uvloop watches its own descriptors only itself. The duplicate is made when first
needed and closed in `close`, for as long as it is open no FIN is sent.

Cold data never blocks the loop: a range is probed before it is sent, and what is not in the page cache is
read ahead in a thread first. Invariant: buffers reach the socket in the order of `send`, whole, or the
connection is aborted; a file that gives fewer bytes than promised aborts it, padding never happens.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from flintmq.broker.request import ResponseBuffer
from flintmq.effects import Executor
from flintmq.storage.segment import FileRange

_GATHERED_MAX: Final = 64
# A larger answer is not worth keeping back, or joining to others.
CORKED_BYTES_MAX: Final = 32 * 1024
_PROBE_STRIDE: Final = 512 * 1024
_READ_AHEAD: Final = 1024 * 1024
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_HAS_SENDFILE: Final = hasattr(os, "sendfile") and os.uname().sysname == "Linux"


def memory_of(buffers: Iterable[ResponseBuffer]) -> int:
    """The bytes of an answer that are in memory."""
    return sum(len(buffer) for buffer in buffers if not isinstance(buffer, FileRange))


class WritabilityWatcher(Protocol):
    """What the pump needs of an event loop."""

    def add_writer(self, fd: int, callback: Callable[[], object]) -> object: ...

    def remove_writer(self, fd: int) -> object: ...


class Outbound:
    __slots__ = (
        "_abort", "_corked", "_corked_bytes", "_drained", "_duplicate", "_executor", "_fd", "_is_corked",
        "_probed", "_queue", "_reading", "_socket", "_watcher", "_watching", "pending_bytes", "progressed",
    )  # fmt: skip

    def __init__(
        self,
        fd: int,
        *,
        watcher: WritabilityWatcher,
        executor: Executor,
        abort: Callable[[], object],
        drained: Callable[[], object],
    ) -> None:
        self._fd = fd
        # Shares the transport's descriptor: detached, never closed, when the connection ends.
        self._socket = socket.socket(fileno=fd)
        self._watcher = watcher
        self._executor = executor
        self._abort = abort
        self._drained = drained
        self.pending_bytes = 0
        self.progressed = False
        """Whether the client took something of a backlog since this was last looked at."""
        self._queue: deque[ResponseBuffer] = deque()
        self._duplicate = -1
        self._watching = False
        self._reading = False
        self._probed: FileRange | None = None
        self._is_corked = False
        self._corked: list[bytes | bytearray | memoryview] = []
        self._corked_bytes = 0

    @property
    def fileno(self) -> int:
        return self._fd

    @property
    def held_bytes(self) -> int:
        """What waits here in memory; `pending_bytes` counts what lies in files as well."""
        return memory_of(self._queue)

    def send(self, buffers: list[ResponseBuffer]) -> int:
        """Send now what the socket takes, the rest when it can; how many bytes that is in all."""
        queue = self._queue
        sent = 0
        if len(buffers) == 1 and not queue and not isinstance(buffer := buffers[0], FileRange):
            # Nearly every reply: one buffer that the socket takes at once, or that waits for its company.
            if self._is_corked and len(buffer) <= CORKED_BYTES_MAX:
                self._corked.append(buffer)
                self._corked_bytes += len(buffer)
                if self._corked_bytes > CORKED_BYTES_MAX:
                    self._push_corked()
                return len(buffer)
            if self._corked:
                self._push_corked()
            if not queue:
                try:
                    sent = self._socket.send(buffer)
                except BlockingIOError:
                    pass
                except OSError:
                    self._fail()
                    return 0
                if sent == len(buffer):
                    return sent
                buffers = [memoryview(buffer)[sent:]]
        elif self._corked:
            self._push_corked()
        size = 0
        for buffer in buffers:
            size += buffer.size if isinstance(buffer, FileRange) else len(buffer)
            queue.append(buffer)
        self.pending_bytes += size
        if not self._watching and not self._reading:
            self._pump()
        return sent + size

    def cork(self) -> None:
        """Keep small answers until `uncork`, which sends them in one call."""
        self._is_corked = True

    def uncork(self) -> None:
        self._is_corked = False
        if self._corked:
            self._push_corked()

    def _push_corked(self) -> None:
        corked, self._corked = self._corked, []
        self._corked_bytes = 0
        was_corked, self._is_corked = self._is_corked, False
        self.send([corked[0] if len(corked) == 1 else b"".join(corked)])
        self._is_corked = was_corked

    def _pump(self) -> None:
        if self._fd < 0:
            return
        queue = self._queue
        try:
            while queue:
                buffer = queue[0]
                if isinstance(buffer, FileRange):
                    if not self._send_range(buffer):
                        return
                else:
                    self._send_buffers()
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

    def _send_buffers(self) -> None:
        """All buffers up to the next range, in one call."""
        queue = self._queue
        buffers: list[bytes | bytearray | memoryview] = []
        more = 0
        for buffer in queue:
            if isinstance(buffer, FileRange):
                more = _MSG_MORE
                break
            if len(buffers) == _GATHERED_MAX:
                break
            buffers.append(buffer)
        sent = (
            self._socket.send(buffers[0], more)
            if len(buffers) == 1
            else self._socket.sendmsg(buffers, (), more)
        )
        self.pending_bytes -= sent
        self.progressed = True
        for buffer in buffers:
            if sent < len(buffer):
                queue[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            queue.popleft()

    def _send_range(self, file_range: FileRange) -> bool:
        """False if the range must be read ahead first."""
        if self._probed is not file_range:
            if not self._is_warm(file_range):
                self._read_ahead(file_range)
                return False
            self._probed = file_range
        while file_range.size:
            if _HAS_SENDFILE and file_range.file.fd >= 0:
                sent = os.sendfile(self._fd, file_range.file.fd, file_range.position, file_range.size)
            else:
                data = file_range.file.pread(min(file_range.size, _READ_AHEAD), file_range.position)
                sent = self._socket.send(data) if data else 0
            if sent == 0:
                raise OSError(errno.EIO, "a log file is shorter than promised")
            file_range.position += sent
            file_range.size -= sent
            self.pending_bytes -= sent
            self.progressed = True
        self._queue.popleft()
        self._probed = None
        return True

    @staticmethod
    def _is_warm(file_range: FileRange) -> bool:
        """Whether the range seems to be in the page cache; without a way to ask, it is taken to be."""
        if not _NOWAIT or file_range.file.fd < 0:
            return True
        byte = [bytearray(1)]
        last = file_range.position + file_range.size - 1
        try:
            for position in range(file_range.position, last, _PROBE_STRIDE):
                os.preadv(file_range.file.fd, byte, position, _NOWAIT)
            os.preadv(file_range.file.fd, byte, last, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                raise
        return True

    def _read_ahead(self, file_range: FileRange) -> None:
        file, position, end = file_range.file, file_range.position, file_range.position + file_range.size

        def read() -> None:
            at = position
            while at < end and file.pread(min(_READ_AHEAD, end - at), at):
                at += _READ_AHEAD

        self._probed = file_range
        self._reading = True
        if self._watching:
            self._watching = False
            self._watcher.remove_writer(self._duplicate)

        def done(_: None, error: BaseException | None) -> None:
            self._reading = False
            if error is not None:
                self._fail()
                return
            self._pump()
            if not self._queue:
                self._drained()

        self._executor.submit(read, done)

    def _wait_for_room(self) -> None:
        if self._watching:
            return
        if self._duplicate < 0:
            try:
                self._duplicate = os.dup(self._fd)
            except OSError:
                # No descriptor is left: those that are needed for files come before a slow client.
                self._fail()
                return
        self._watching = True
        self._watcher.add_writer(self._duplicate, self._pump)

    def _fail(self) -> None:
        self._forget()
        self._abort()

    def _forget(self) -> None:
        """Let go of everything that was to be sent, the files among it first of all."""
        self._queue.clear()
        self._corked.clear()
        self._corked_bytes = 0
        self._probed = None
        self.pending_bytes = 0

    def close(self) -> None:
        """In `connection_lost`, and before the transport closes the descriptor."""
        if self._fd < 0:
            return
        self._fd = -1
        self._forget()
        self._socket.detach()
        if self._duplicate >= 0:
            if self._watching:
                self._watching = False
                self._watcher.remove_writer(self._duplicate)
            os.close(self._duplicate)
            self._duplicate = -1
