"""Metrics of a program that is not a broker and has no event loop, for Prometheus to scrape.

    with MetricsServer(metrics.text, port=9400): …        at http://127.0.0.1:9400/metrics

Invariant: the server runs in a thread of its own and ends with the `with` block.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from flintmq.http.request import Page
from flintmq.http.server import HttpServer, bind
from flintmq.metrics.exposition import CONTENT_TYPE


class MetricsServer:
    def __init__(self, text: Callable[[], str], *, port: int, host: str = "127.0.0.1") -> None:
        """Serve what `text` returns, which is called in the server's thread; port 0 takes a free one."""
        self._text = text
        self._host = host
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()

    def __enter__(self) -> MetricsServer:
        try:
            sock = bind(
                self._host,
                self.port,
                option="--metrics-port",
                alternatives="another port, or 0 for a free one",
            )
        except BaseException:
            self._loop.close()
            raise
        self.port = sock.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(sock,), name="metrics", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    def _run(self, sock: socket.socket) -> None:
        self._loop.run_until_complete(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        server = HttpServer({"/metrics": self._page, "/prometheus": self._page})
        await server.start_on(sock)
        await self._stopped.wait()
        await server.stop()

    async def _page(self) -> Page:
        return Page(self._text().encode(), CONTENT_TYPE)
