"""The listener: connections in bounded number, each answered request by request, and never waited for long.

A page is made when it is asked for. What goes wrong in making one is logged and answered with 500; it never
reaches the loop. This module does not know what any page says.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from flintmq.errors import ConfigurationError
from flintmq.http.request import BadRequest, HttpRequest, Page, parse_head, response_head

logger = logging.getLogger(__name__)

Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""Pages by their paths."""

_BACKLOG = 16


class PortTaken(ConfigurationError):
    """Another program listens on the port."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    connections: int = 32
    head_bytes: int = 8 * 1024
    head_s: float = 5.0
    """For the head of a request to arrive, once its connection is there."""
    idle_s: float = 60.0
    """Between one request and the next on the same connection."""
    send_s: float = 10.0


def json_page(value: object, status: int = 200) -> Page:
    body = json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    return Page(body, "application/json; charset=utf-8", status)


class HttpServer:
    def __init__(self, pages: Pages, limits: HttpLimits | None = None) -> None:
        self._pages = pages
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen as `bind` does."""
        await self.start_on(bind(host, port))
        self.host = host or "0.0.0.0"

    async def start_on(self, sock: socket.socket) -> None:
        """Listen on a socket that `bind` has made."""
        self.host, self.port = sock.getsockname()[:2]
        self._server = await asyncio.start_server(self._accept, sock=sock, limit=self._limits.head_bytes)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone, or too slow to be waited for
        except asyncio.CancelledError:
            pass  # the server stops: this task has no one else who awaits it
        finally:
            self._serving.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # a client that takes nothing must not keep its buffer here
            else:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limits = self._limits
        # To have drained is to have handed everything to the kernel.
        writer.transport.set_write_buffer_limits(0)
        if len(self._serving) > limits.connections:
            await self._send(writer, _plain(503, "too many connections"), keeps_alive=False)
            return
        patience_s = limits.head_s
        keeps_alive = True
        while keeps_alive:
            try:
                async with asyncio.timeout(patience_s):
                    head = await reader.readuntil(b"\r\n\r\n")
                request = parse_head(head)
            except asyncio.LimitOverrunError:
                await self._send(writer, _plain(431, "the head is too long"), keeps_alive=False)
                return
            except BadRequest as error:
                await self._send(writer, _plain(error.status, str(error)), keeps_alive=False)
                return
            keeps_alive = request.keeps_alive
            page = await self._page(request)
            await self._send(writer, page, keeps_alive=keeps_alive, head_only=request.method == "HEAD")
            patience_s = limits.idle_s

    async def _page(self, request: HttpRequest) -> Page:
        make = self._pages.get(request.path)
        if make is None:
            return _plain(404, f"there is no such page; there are {', '.join(sorted(self._pages))}")
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "pages can only be read")
        try:
            return await make()
        except Exception:
            logger.exception("the page %s could not be made", request.path)
            return _plain(500, "the page could not be made; see the log")

    async def _send(
        self, writer: asyncio.StreamWriter, page: Page, *, keeps_alive: bool, head_only: bool = False
    ) -> None:
        writer.write(response_head(page, keeps_alive=keeps_alive) + (b"" if head_only else page.body))
        async with asyncio.timeout(self._limits.send_s):
            await writer.drain()


def _plain(status: int, words: str) -> Page:
    return Page(words.encode() + b"\n", "text/plain; charset=utf-8", status)


def bind(
    host: str,
    port: int,
    *,
    option: str = "flint.rest.port",
    alternatives: str = "another port, 0 for a free one, or -1 for none",
) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raise ConfigurationError if that fails, PortTaken if another program listens there; the message names the
    `option` to change and its `alternatives`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        words = f"Cannot listen on {host or '0.0.0.0'}:{port} for HTTP ({option}): {error.strerror}."
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"{words} Choose {alternatives}.") from error
        raise ConfigurationError(words) from error
