"""The broker's end of a simulated connection, in place of `server.connection`: frames in, responses in order."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, Protocol

from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import ClientSession, Request, ResponseBuffers
from flintmq.effects import Timer
from flintmq.storage.segment import FileRange
from flintmq.testing.simulation.process import SimulatedProcess

logger = logging.getLogger(__name__)

_LENGTH: Final = 4
IN_FLIGHT_MAX: Final = 100


class ResponseWire(Protocol):
    def respond(self, data: bytes) -> None: ...

    def refuse(self) -> None: ...


class ServerEnd:
    """`broker.request.ResponseChannel` over a wire."""

    def __init__(
        self, wire: ResponseWire, process: SimulatedProcess, dispatcher: Dispatcher, *, peer: str
    ) -> None:
        self.session = ClientSession(
            listener="PLAINTEXT", peer=peer, local_host=process.name.replace(" ", "-"), local_port=9092
        )
        self._wire = wire
        self._process = process
        self._dispatcher = dispatcher
        self._pending: deque[Request] = deque()
        self._held: deque[bytes] = deque()
        self._throttle: Timer | None = None
        self._is_closed = False

    # ---- from the wire

    def received(self, data: bytes) -> None:
        self._held.append(data)
        self._dispatch_held()

    def lost(self) -> None:
        self._is_closed = True
        self._held.clear()
        if self._throttle is not None:
            self._throttle.cancel()
        for request in self._pending:
            if request.delayed is not None:
                request.delayed.cancel()
        self._pending.clear()

    # ---- from the dispatcher

    def send_response(self, request: Request) -> None:
        pending = self._pending
        if self._is_closed:
            return
        while pending and (response := pending[0].response) is not None:
            pending.popleft()
            self._send(response)
        self._dispatch_held()

    def refuse(self, reason: str) -> None:
        logger.info("%s: %s", self.session.peer, reason)
        self._close()

    def authenticated(self) -> None:
        """Connections have no limits here before they are authenticated."""

    def throttle(self, delay_s: float) -> None:
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = self._process.loop.call_later(delay_s, self._unthrottle)

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        request.barrier = True
        self._process.loop.call_later(delay_s, self._finish_rejection, request, response)

    # ----

    def _dispatch_held(self) -> None:
        while self._held and not self._is_closed and not self._is_blocked():
            # Writable, as what a connection has received is: batches get their offsets in place.
            frame = memoryview(bytearray(self._held.popleft()))
            request = self._dispatcher.dispatch(self, frame)
            if request is None or self._is_closed:
                continue
            if request.response is not None and not self._pending:
                self._send(request.response)
            else:
                self._pending.append(request)

    def _is_blocked(self) -> bool:
        pending = self._pending
        if self._throttle is not None or len(pending) >= IN_FLIGHT_MAX:
            return True
        return bool(pending) and pending[-1].barrier and pending[-1].response is None

    def _send(self, response: ResponseBuffers) -> None:
        if not response or not self._process.is_alive:
            return
        try:
            data = b"".join(
                buffer.read() if isinstance(buffer, FileRange) else bytes(buffer) for buffer in response
            )
        except OSError as error:
            self.refuse(f"a response could not be read: {error}")
            return
        self._wire.respond(data[_LENGTH:])

    def _unthrottle(self) -> None:
        self._throttle = None
        self._dispatch_held()

    def _finish_rejection(self, request: Request, response: ResponseBuffers) -> None:
        request.respond(response)
        self._close()

    def _close(self) -> None:
        if not self._is_closed:
            self.lost()
            if self._process.is_alive:
                self._wire.refuse()
