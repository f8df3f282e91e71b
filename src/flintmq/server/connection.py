"""One client's connection: frames in, dispatched in order; answers out, in the same order.

A parked request (a long poll, acks=all) does not keep those behind it from being dispatched, only from
being answered before it. Reading stops while too many requests are in flight, while a barrier is pending,
while the client does not take its answers, and while the memory budget says so. However much a client sends
at once, it is handled for a few milliseconds at a time, so that the others have their turn.

A client that exceeds a quota is not read from for a while. A request of which a part has arrived is received to its
end all the same, so that throttled clients keep no memory that others wait for.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from time import monotonic
from typing import Final, cast

from flintmq.broker.request import ClientSession, Request, ResponseBuffers
from flintmq.broker.throttling import charge_time
from flintmq.effects import Timer
from flintmq.errors import ProtocolError
from flintmq.server.closed_connections import CloseReason
from flintmq.server.context import ServerContext
from flintmq.server.inbound import SHARED_BYTES, FrameBuffer, frame_size
from flintmq.server.outbound import Outbound, memory_of

# A client that lets more than this pile up is not read from until it has taken it.
BACKLOG_BYTES_MAX: Final = 1024 * 1024
# From where on a client is counted among those that let much pile up.
BACKLOG_BYTES_COUNTED: Final = 64 * 1024
# How long the requests of one connection are handled before the others have their turn.
TURN_S: Final = 0.005
# What is read at a time from a client that may write little: a second's worth at once would not be its rate.
SLOW_READ_BYTES: Final = 4096
# Connections beyond a limit of their rate that wait to be closed; above it they are closed at once.
TURNED_AWAY_MAX: Final = 1000
_LENGTH: Final = 4
_NOTHING: Final = memoryview(b"")


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_dispatching", "_frame_size_max", "_held", "_is_finishing", "_is_rejected", "_own", "_paused", "_pending",
        "_shared", "_throttle", "_throttled_until", "_unfinished", "_unsent_bytes", "active_at", "outbound",
        "session", "transport",
    )  # fmt: skip

    session: ClientSession
    outbound: Outbound
    transport: asyncio.Transport

    def __init__(self, shared: ServerContext, listener: str, security_protocol: str = "PLAINTEXT") -> None:
        self._shared = shared
        self.session = ClientSession(
            listener=listener, peer="?", local_host="", local_port=0, security_protocol=security_protocol
        )
        self._frame_size_max = shared.frame_size_max
        if not self.session.is_authenticated:
            self._frame_size_max = min(shared.unauthenticated_frame_size_max, shared.frame_size_max)
        self._own = FrameBuffer(self._frame_size_max, shared.ordinary_frame_size_max)
        # Authentication failed: what arrives is neither read nor kept.
        self._is_rejected = False
        # Closed once what was dispatched is answered: nothing more is dispatched.
        self._is_finishing = False
        self._unfinished = False
        # What arrived while dispatch was held back, from the beginning of a frame on.
        self._held = _NOTHING
        self._pending: deque[Request] = deque()
        # Answers that are there, but wait for that of an earlier request: their bytes in memory.
        self._unsent_bytes = 0
        self._paused = False
        self._dispatching = False
        self._throttle: Timer | None = None
        self._throttled_until = 0.0
        self.active_at = shared.loop.time()

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        shared = self._shared
        sock = transport.get_extra_info("socket")
        self.outbound = self._create_outbound(sock.fileno())
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer is None or local is None:
            # The client was gone before it was accepted.
            self.transport.abort()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.session.peer_host = peer[0]
        self.session.peer = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self.session.local_host, self.session.local_port = local[0], local[1]
        delay_s = shared.turned_away_s(self) if shared.turned_away_s is not None else 0.0
        if delay_s > 0:
            self._turn_away(delay_s)
            return
        reason = shared.admits(self)
        if reason is not None:
            self.refuse(reason, CloseReason.LIMIT)
            return
        shared.counters.accepted += 1
        shared.connections[self] = None
        if self.session.security_protocol != "PLAINTEXT":
            reason = shared.unauthenticated.enter(self)
            if reason is not None:
                self.refuse(reason, CloseReason.LIMIT)

    def _create_outbound(self, fd: int) -> Outbound:
        shared = self._shared
        return Outbound(
            fd,
            watcher=shared.loop,
            executor=shared.executor,
            abort=self.transport.abort,
            drained=self._drained,
        )

    def connection_lost(self, error: BaseException | None) -> None:
        shared = self._shared
        if shared.connections.pop(self, self) is None:
            shared.on_closed(self)
            shared.unauthenticated.leave(self)
        shared.turned_away.pop(self, None)
        self._end_throttle()
        shared.budget.release(self)
        shared.backlog.release(self)
        self.outbound.close()
        for request in self._pending:
            if request.delayed is not None:
                request.delayed.cancel()
        self._pending.clear()
        self._own.clear()
        self._held = _NOTHING

    def eof_received(self) -> bool:
        return False

    def refuse(self, reason: str, kind: CloseReason = CloseReason.REQUEST) -> None:
        shared = self._shared
        shared.counters.refused[kind.value] += 1
        shared.refusals.note(self.session.peer_host, self.session.peer, kind, reason)
        self.close()

    def give_up(self, reason: str) -> None:
        """The client is not authenticated, and its time is over or others need the room."""
        self.refuse(reason, CloseReason.HANDSHAKE)

    @property
    def host(self) -> str:
        return self.session.peer_host

    def close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def authenticated(self) -> None:
        self._frame_size_max = self._own.frame_size_max = self._shared.frame_size_max
        self._shared.unauthenticated.leave(self)

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        shared = self._shared
        if self._is_rejected or self.transport.is_closing():
            return
        self._is_rejected = True
        # Until it has its response nothing more is dispatched.
        request.barrier = True
        shared.counters.refused[CloseReason.AUTHENTICATION.value] += 1
        shared.refusals.note(self.session.peer_host, self.session.peer, CloseReason.AUTHENTICATION, reason)
        self._pause()
        self._held = _NOTHING
        shared.loop.call_later(delay_s, self._finish_rejection, request, response)

    def _turn_away(self, delay_s: float) -> None:
        """Close after the delay, so that the client does not try again at once; at once if too many wait."""
        shared = self._shared
        self._is_rejected = True
        if len(shared.turned_away) >= TURNED_AWAY_MAX:
            self.close()
            return
        shared.turned_away[self] = None
        # Not at once: uvloop begins to read after this step, whatever is asked for in it.
        shared.loop.call_soon(self._pause)
        shared.loop.call_later(delay_s, self.close)

    def _finish_rejection(self, request: Request, response: ResponseBuffers) -> None:
        request.respond(response)
        self.close()

    @property
    def fileno(self) -> int:
        return self.outbound.fileno

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from it for now."""
        return self._paused

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def is_writing(self) -> bool:
        """Whether a request waits for its answer, or an answer for the client to take it."""
        return self.outbound.pending_bytes > 0 or bool(self._pending)

    @property
    def is_stalled(self) -> bool:
        """Whether a frame has begun and it is the client that keeps it from going on.

        One that this side does not read from is none, unless it holds memory that others wait for.
        """
        if not self._unfinished:
            return False
        budget = self._shared.budget
        return not budget.is_waiting(self) and (not self._paused or budget.is_charged(self))

    def release_memory(self) -> None:
        """Nothing is under way: keep no buffer for what may never come."""
        if not self._unfinished and not len(self._held):
            self._own.clear()
            self._shared.budget.release(self)

    def finish(self) -> None:
        """Dispatch nothing more; answer long polls with what there is, so that none keeps others waiting."""
        self._is_finishing = True
        self._pause()
        for request in list(self._pending):
            if request.delayed is not None:
                request.delayed.expire()

    # ---- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._unfinished:
            limits = self.session.limits
            if limits is not None and limits.is_slow:
                return self._shared.buffer[:SLOW_READ_BYTES]
            return self._shared.buffer
        own = self._own
        if own.needs_room():
            own.grow()
        return own.writable()

    def buffer_updated(self, nbytes: int) -> None:
        shared = self._shared
        self.active_at = shared.loop.time()
        try:
            if self._unfinished:
                self._continue_frame(nbytes)
            else:
                self._take(shared.buffer[:nbytes], shared=True)
        except ProtocolError as error:
            reason = str(error)
            if not self.session.is_authenticated:
                reason = reason.replace("socket.request.max.bytes", "sasl.server.max.receive.size")
            self.refuse(reason, CloseReason.FRAME)

    def _continue_frame(self, nbytes: int) -> None:
        own = self._own
        if own.received(nbytes):
            self._unfinished = False
            if self._blocked():
                # The frame keeps its buffer and its place in the budget until it is dispatched.
                self._held = own.whole()
                self._pause()
                return
            self._dispatch(own.frame())
            self._shared.budget.keep(self, own.clear)
            if self._is_rejected or self._throttle is not None:
                self.release_memory()
            if self._throttle is not None or self._blocked():
                self._pause()
        elif not self._may_grow():
            self._pause()

    def _may_grow(self) -> bool:
        """Whether the unfinished frame has room for more, or may have it. Small frames always may."""
        own = self._own
        if not self._unfinished or not own.needs_room() or own.wanted_capacity() <= SHARED_BYTES:
            return True
        return self._shared.budget.grow(self, own.wanted_capacity(), self._resume_reading)

    def _take(self, data: memoryview, *, shared: bool) -> None:
        """Dispatch the frames that are complete in `data`; keep the rest.

        `shared` data is copied to be kept, for other connections will receive into it. Requests that came
        together are answered together: a call to the kernel costs as much as all else about a small one.
        """
        self.outbound.cork()
        try:
            self._take_frames(data, shared)
        finally:
            self.outbound.uncork()
        if self._blocked():
            self._pause()
        elif self._throttle is not None:
            self._pause_between_frames()

    def _take_frames(self, data: memoryview, shared: bool) -> None:
        position, end = 0, len(data)
        turn_ends = 0.0
        while end - position >= _LENGTH:
            if self._blocked():
                self._hold(data[position:], shared)
                return
            if not turn_ends:
                turn_ends = monotonic() + TURN_S
            elif monotonic() > turn_ends:
                self._hold(data[position:], shared)
                self._shared.loop.call_soon(self._resume)
                return
            # Read each time: the frame before may have authenticated the client.
            after = position + _LENGTH + frame_size(data, position, self._frame_size_max)
            if after > end:
                break
            self._dispatch(data[position + _LENGTH : after])
            position = after
        if position < end and not self._is_rejected:
            self._shared.budget.use(self)
            self._own.start(data[position:])
            self._unfinished = True
            if not self._may_grow():
                self._pause()

    def _hold(self, rest: memoryview, shared: bool) -> None:
        if self._is_rejected:
            self._pause()
            return
        self._held = memoryview(bytearray(rest)) if shared else rest
        self._pause()

    def _dispatch(self, frame: memoryview) -> None:
        if self._is_rejected or self._is_finishing or self.transport.is_closing():
            return
        request = self._shared.dispatcher.dispatch(self, frame)
        if request is None:
            return
        response = request.response
        if response is not None and not self._pending:
            request.counters.answered(request.began, self.outbound.send(response) if response else 0)
            if request.limits is not None:
                charge_time(request, request.limits)
            if self.outbound.pending_bytes > BACKLOG_BYTES_COUNTED:
                self._count_backlog()
            return
        self._pending.append(request)
        if response:
            self._keep(response)

    def _blocked(self) -> bool:
        pending = self._pending
        if pending:
            last = pending[-1]
            if len(pending) >= self._shared.in_flight_max or (last.barrier and last.response is None):
                return True
        return self.outbound.pending_bytes + self._unsent_bytes > BACKLOG_BYTES_MAX

    # ---- answers out

    def send_response(self, request: Request) -> None:
        pending = self._pending
        if self.transport.is_closing():
            return
        if pending and pending[0] is request:
            # To be answered is to be active: who waited long must not be taken for idle.
            self.active_at = self._shared.loop.time()
            while pending and (response := pending[0].response) is not None:
                first = pending.popleft()
                if first is not request:
                    self._unsent_bytes -= memory_of(response)
                first.counters.answered(first.began, self.outbound.send(response) if response else 0)
                if first.limits is not None:
                    charge_time(first, first.limits)
            if self.outbound.pending_bytes > BACKLOG_BYTES_COUNTED:
                self._count_backlog()
            elif self._shared.backlog.held:
                self._shared.backlog.release(self)
        elif request.response:
            self._keep(request.response)
        if self._paused:
            # Even if it is not this request's turn yet: it may have been a barrier.
            self._resume()

    # ---- quotas

    def throttle(self, delay_s: float) -> None:
        shared = self._shared
        if self.transport.is_closing():
            return
        until = shared.loop.time() + delay_s
        if until <= self._throttled_until:
            return
        self._throttled_until = until
        if self._throttle is not None:
            self._throttle.cancel()
        shared.throttled[self] = None
        self._throttle = shared.loop.call_later(delay_s, self.unthrottle)
        self._pause_between_frames()

    def _pause_between_frames(self) -> None:
        if self._unfinished:
            self._resume_reading()
        else:
            self._pause()

    def unthrottle(self) -> None:
        """Go on reading: the time is over, or the quota is gone."""
        self._end_throttle()
        self._resume()

    def _end_throttle(self) -> None:
        self._throttled_until = 0.0
        self._shared.throttled.pop(self, None)
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None

    # ---- back-pressure

    def _keep(self, response: ResponseBuffers) -> None:
        """An answer that has to wait for that of an earlier request."""
        self._unsent_bytes += memory_of(response)
        if self._unsent_bytes > BACKLOG_BYTES_COUNTED:
            self._count_backlog()

    def _count_backlog(self) -> None:
        held = self.outbound.held_bytes + self._unsent_bytes
        if held > BACKLOG_BYTES_COUNTED:
            for connection in self._shared.backlog.hold(self, held):
                connection.refuse(
                    "it does not take its answers, and others need the memory", CloseReason.STALLED
                )

    def _drained(self) -> None:
        """The client has taken everything that was sent."""
        if self._unsent_bytes <= BACKLOG_BYTES_COUNTED:
            self._shared.backlog.release(self)
        self._resume()

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        """Something was answered or taken: go on with what is held, then with reading."""
        if not self._paused or self._blocked() or self._dispatching or self.transport.is_closing():
            return
        if self._is_finishing or self._shared.draining or self._is_rejected:
            return
        self._dispatching = True
        try:
            if len(self._held):
                held, self._held = self._held, _NOTHING
                self._take_held(held)
        except ProtocolError as error:
            self.refuse(str(error), CloseReason.FRAME)
            return
        finally:
            self._dispatching = False
        if not len(self._held):
            self._resume_reading()

    def _take_held(self, held: memoryview) -> None:
        if held.obj is self._own.data:
            # One large frame that was complete while dispatch was held back.
            self._dispatch(held[_LENGTH:])
            self._shared.budget.keep(self, self._own.clear)
        else:
            self._take(held, shared=False)

    def _resume_reading(self) -> None:
        if self._is_finishing or self._shared.draining:
            return
        if self._is_rejected or self.transport.is_closing():
            return
        if self._throttle is not None and not self._unfinished:
            return
        if self._paused and not self._blocked() and self._may_grow():
            self._paused = False
            self.transport.resume_reading()
