"""The server's connections on a real loop and real sockets, with a dispatcher that does what frames say.

    E…  answered at once with the same bytes      N…  handled without an answer, as acks=0 is
    P…  a long poll, until `answer`               W…  a write that waits for `answer`
    B…  the same as W, and a barrier              L123  answered at once with 123 bytes
    T…  answered at once, and the connection is throttled for `throttle_s`

Everything is waited for by events; nothing here sleeps.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from flintmq.broker.apis import BY_KEY
from flintmq.broker.request import Request, ResponseBuffers
from flintmq.effects.real import LoopExecutor
from flintmq.server.connection import Connection
from flintmq.server.context import ServerContext
from flintmq.server.inbound_budget import InboundBudget

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, LoopFactory] = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}

TIMEOUT_S = 20.0
FRAME_SIZE_MAX = 64 * 1024 * 1024
_SIZE = struct.Struct(">i")


def run_on(factory: LoopFactory, work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(TIMEOUT_S):
            return await work

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(bounded())


def framed(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


class Waiter:
    """Stands for a long poll."""

    def __init__(self, dispatcher: ScriptedDispatcher, request: Request, data: bytes) -> None:
        self._dispatcher = dispatcher
        self._request = request
        self._data = data

    def cancel(self) -> None:
        self._dispatcher.cancelled.append(self._data)
        self._dispatcher.changed()

    def expire(self) -> None:
        self._request.delayed = None
        self._request.respond([framed(self._data)])


class ScriptedDispatcher:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.parked: dict[bytes, Request] = {}
        self.cancelled: list[bytes] = []
        self.responses: dict[bytes, ResponseBuffers] = {}
        """Answers prepared by a test, by the frame that asks for them."""
        self.throttle_s = 3600.0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def received(self, count: int) -> None:
        await self.until(lambda: len(self.frames) >= count)

    def dispatch(self, connection: Connection, frame: memoryview) -> Request | None:
        data = bytes(frame)
        request = Request(connection, BY_KEY[3], 0, 0, None, frame, 0)
        kind = data[:1]
        if data in self.responses:
            request.response = self.responses[data]
        elif kind == b"T":
            request.response = [framed(data)]
            connection.throttle(self.throttle_s)
        elif kind == b"E":
            request.response = [framed(data)]
        elif kind == b"N":
            request.response = []
        elif kind == b"L":
            request.response = [framed(bytes(int(data[1:])))]
        else:
            self.parked[data] = request
            if kind == b"P":
                request.delayed = Waiter(self, request, data)
            request.barrier = kind == b"B"
        request.frame = None
        self.frames.append(data)
        self.changed()
        return request

    def answer(self, data: bytes, response: ResponseBuffers | None = None) -> None:
        request = self.parked.pop(data)
        request.delayed = None
        request.respond([framed(data)] if response is None else response)


class Client:
    """A raw socket, read and written a step at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self.sock = sock
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def frame(self) -> bytes:
        (size,) = _SIZE.unpack(await self.read(4))
        return await self.read(size)

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self._loop.sock_recv(self.sock, 1 << 20)
            if not data:
                raise EOFError
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def closed(self) -> bytes:
        """What still came, once the other side has closed."""
        while True:
            try:
                data = await self._loop.sock_recv(self.sock, 1 << 20)
            except ConnectionResetError:
                break
            if not data:
                break
            self._buffer += data
        return bytes(self._buffer)

    async def ask(self, data: bytes) -> bytes:
        await self.send(framed(data))
        return await self.frame()

    def close(self) -> None:
        self.sock.close()


class Loopback:
    """`async with Loopback() as server:` listens on a free port of 127.0.0.1."""

    def __init__(
        self,
        *,
        in_flight_max: int = 128,
        frame_size_max: int = FRAME_SIZE_MAX,
        budget: int = 1 << 40,
        send_buffer: int | None = None,
    ) -> None:
        self._send_buffer = send_buffer
        self.loop = loop = asyncio.get_running_loop()
        self.executor = LoopExecutor(loop, 1)
        self.dispatcher = ScriptedDispatcher()
        self.lost: list[Connection] = []
        self.all: list[Connection] = []
        self.shared = ServerContext(
            loop=loop,
            dispatcher=self.dispatcher,
            executor=self.executor,
            budget=InboundBudget(budget),
            frame_size_max=frame_size_max,
            in_flight_max=in_flight_max,
            admits=self._admits,
            on_closed=self._closed,
        )
        self._clients: list[Client] = []

    def _admits(self, connection: Connection) -> str | None:
        self.all.append(connection)
        self.dispatcher.changed()
        return None

    def _closed(self, connection: Connection) -> None:
        self.lost.append(connection)
        self.dispatcher.changed()

    async def __aenter__(self) -> Loopback:
        sock = socket.socket()
        if self._send_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        self.address = sock.getsockname()
        self._server = await self.loop.create_server(
            lambda: Connection(self.shared, "PLAINTEXT"), sock=sock, backlog=128
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self.shared.connections):
            connection.transport.abort()
        await self.dispatcher.until(lambda: not self.shared.connections)
        for client in self._clients:
            client.close()
        self.executor.close()

    async def connect(self, *, receive_buffer: int | None = None, accepted: bool = True) -> Client:
        """A client whose connection is `self.all[-1]`, unless it is not accepted."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        count = len(self.all)
        await self.loop.sock_connect(sock, self.address)
        client = Client(self.loop, sock)
        self._clients.append(client)
        if accepted:
            await self.dispatcher.until(lambda: len(self.all) > count)
        return client

    async def settle(self) -> None:
        """Everything that clients sent before has been read, if it is read at all.

        Bytes sent over loopback are in the receiver's queue when the send returns. A round trip of another
        connection shows that the loop has looked at all queues; the second, that it has looked once more.
        """
        fence = await self.connect()
        for _ in range(3):
            await fence.ask(b"E")
            self.dispatcher.frames.remove(b"E")
        connection = self.all.pop()
        fence.close()
        await self.dispatcher.until(lambda: connection in self.lost)
        self.lost.remove(connection)
