"""A TCP proxy between clients and a broker, for tests that cut, refuse or silence their connections.

    with TcpProxy() as proxy:
        proxy.target = broker.host, broker.port
        connect(proxy.address)
        proxy.cut()

Its port stays the same while the broker behind it comes and goes. Without a target, connections are closed as soon as
they come. Invariant: when `close` returns, its thread has ended and no socket is left.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

_CHUNK_BYTES = 64 * 1024
_START_TIMEOUT_S = 10.0


class TcpProxy:
    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tcp-proxy")
        self._writers: set[asyncio.StreamWriter] = set()
        self._stopping = asyncio.Event()
        # Set while answers may pass.
        self._answering = asyncio.Event()
        self._answering.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        assert self._started.wait(_START_TIMEOUT_S), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def cut(self) -> None:
        """Break every connection; new ones are welcome."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def silence(self) -> None:
        """Requests pass, answers do not, until `cut` or `speak`."""
        self._loop.call_soon_threadsafe(self._answering.clear)

    def speak(self) -> None:
        self._loop.call_soon_threadsafe(self._answering.set)

    # ---- in its thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        self._abort_all()
        # A connection that was just accepted begins its task only now, so they are looked for until none is left.
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            if self.target is None:
                return
            far_reader, far = await asyncio.open_connection(*self.target)
            self._writers.add(far)
            requests = asyncio.ensure_future(self._pump(reader, far, is_answer=False))
            answers = asyncio.ensure_future(self._pump(far_reader, writer, is_answer=True))
            try:
                await asyncio.wait((requests, answers), return_when=asyncio.FIRST_COMPLETED)
            finally:
                requests.cancel()
                answers.cancel()
                await asyncio.gather(requests, answers, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            return
        finally:
            for one in (writer, far):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if is_answer:
                await self._answering.wait()
            writer.write(data)
            await writer.drain()
