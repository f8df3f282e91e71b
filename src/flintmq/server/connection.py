"""One client's connection: frames in, dispatched in order; answers out, in the same order.

A parked request (a long poll, acks=all) does not keep those behind it from being dispatched, only from
being answered before it. Reading stops while too many requests are in flight, while a barrier is pending,
while the client does not take its answers, and while the memory budget says so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from flintmq.broker.request import Request, Session
from flintmq.effects import Executor
from flintmq.errors import ProtocolError
from flintmq.server.budget import Budget
from flintmq.server.inbound import SHARED_BYTES, FrameBuffer, frame_size
from flintmq.server.outbound import Outbound

logger = logging.getLogger(__name__)

# A client that lets more than this pile up is not read from until it has taken it.
BACKLOG_BYTES_MAX = 1024 * 1024
_LENGTH = 4


class Dispatch(Protocol):
    def dispatch(self, connection: Connection, frame: memoryview) -> Request | None:
        """Handle one frame. A request that is not answered yet will call `connection.answered`."""
        ...

    def closed(self, connection: Connection) -> None: ...


@dataclass(slots=True)
class Shared:
    """What all connections of a server have in common."""

    loop: asyncio.AbstractEventLoop
    dispatcher: Dispatch
    executor: Executor
    budget: Budget
    frame_size_max: int
    in_flight_max: int
    connections: dict[Connection, None]
    buffer: memoryview
    admits: Callable[[Connection], str | None]
    on_closed: Callable[[Connection], object]

    @staticmethod
    def new_buffer() -> memoryview:
        return memoryview(bytearray(SHARED_BYTES))


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_dispatching", "_held", "_own", "_paused", "_pending", "_shared", "_unfinished", "active_at",
        "outbound", "session", "transport",
    )  # fmt: skip

    session: Session
    outbound: Outbound
    transport: asyncio.Transport

    def __init__(self, shared: Shared, listener: str) -> None:
        self._shared = shared
        self._own = FrameBuffer(shared.frame_size_max)
        self._unfinished = False
        # Whole frames that arrived while dispatch was held back, in one buffer.
        self._held = b""
        self._pending: deque[Request] = deque()
        self._paused = False
        self._dispatching = False
        self.active_at = shared.loop.time()
        self.session = Session(listener=listener, peer="?", local_host="", local_port=0)

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        shared = self._shared
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.session.peer_host = peer[0]
        self.session.peer = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self.session.local_host, self.session.local_port = local[0], local[1]
        self.outbound = Outbound(
            sock.fileno(),
            watcher=shared.loop,
            executor=shared.executor,
            abort=self.transport.abort,
            drained=self._resume,
        )
        reason = shared.admits(self)
        if reason is not None:
            self.refuse(reason)
            return
        shared.connections[self] = None

    def connection_lost(self, error: BaseException | None) -> None:
        shared = self._shared
        if shared.connections.pop(self, self) is None:
            shared.on_closed(self)
        shared.budget.release(self)
        self.outbound.close()
        for request in self._pending:
            if request.cancel is not None:
                request.cancel()
        self._pending.clear()
        self._own.clear()
        self._held = b""
        shared.dispatcher.closed(self)

    def eof_received(self) -> bool:
        return False

    def refuse(self, reason: str) -> None:
        logger.warning("closing the connection of %s: %s", self.session.peer, reason)
        self.close()

    def close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def is_writing(self) -> bool:
        """Whether something other than a long poll waits for its answer, or an answer for the client."""
        return self.outbound.pending_bytes > 0 or any(request.cancel is None for request in self._pending)

    def stop_reading(self) -> None:
        self._pause()

    # ---- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._unfinished:
            return self._shared.buffer
        own = self._own
        if own.needs_room():
            own.grow()
        return own.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._shared.loop.time()
        try:
            if self._unfinished:
                self._continue_frame(nbytes)
            else:
                self._take(self._shared.buffer[:nbytes])
        except ProtocolError as error:
            self.refuse(str(error))

    def _continue_frame(self, nbytes: int) -> None:
        own = self._own
        if own.received(nbytes):
            self._unfinished = False
            self._shared.budget.release(self)
            if self._blocked():
                self._held = bytes(own.view[: own.total])
                self._pause()
            else:
                self._dispatch(own.frame())
                if self._blocked():
                    self._pause()
        elif own.needs_room() and own.wanted_capacity() > len(own.data):
            if own.wanted_capacity() > SHARED_BYTES and not self._shared.budget.grow(
                self, own.wanted_capacity(), self._resume_reading
            ):
                self._pause()

    def _take(self, data: memoryview) -> None:
        """Dispatch the frames that are complete in `data`; keep the rest."""
        position, end = 0, len(data)
        limit = self._shared.frame_size_max
        while end - position >= _LENGTH:
            if self._blocked():
                self._held = bytes(data[position:])
                self._pause()
                return
            after = position + _LENGTH + frame_size(data, position, limit)
            if after > end:
                break
            self._dispatch(data[position + _LENGTH : after])
            position = after
        if position < end:
            self._own.start(data[position:])
            self._unfinished = True
        if self._blocked():
            self._pause()

    def _dispatch(self, frame: memoryview) -> None:
        if self.transport.is_closing():
            return
        request = self._shared.dispatcher.dispatch(self, frame)
        if request is None:
            return
        if not self._pending and request.pieces is not None:
            if request.pieces:
                self.outbound.send(request.pieces)
            return
        self._pending.append(request)

    def _blocked(self) -> bool:
        pending = self._pending
        return bool(pending) and (
            len(pending) >= self._shared.in_flight_max or pending[-1].barrier
        ) or self.outbound.pending_bytes > BACKLOG_BYTES_MAX  # fmt: skip

    # ---- answers out

    def answered(self, request: Request) -> None:
        pending = self._pending
        if not pending or pending[0] is not request or self.transport.is_closing():
            return  # not its turn, or the connection is going
        while pending and (pieces := pending[0].pieces) is not None:
            pending.popleft()
            if pieces:
                self.outbound.send(pieces)
        if self._paused:
            self._resume()

    # ---- back-pressure

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        """Something was answered or taken: go on with what is held, then with reading."""
        if not self._paused or self._blocked() or self._dispatching or self.transport.is_closing():
            return
        self._dispatching = True
        try:
            if self._held:
                held, self._held = memoryview(bytearray(self._held)), b""
                self._take(held)
        except ProtocolError as error:
            self.refuse(str(error))
            return
        finally:
            self._dispatching = False
        if not self._held and not self._blocked():
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._paused and not self._blocked() and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
