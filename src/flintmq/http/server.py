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
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from flintmq.errors import ConfigurationError
from flintmq.http.request import BadRequest, HttpRequest, Page, parse_head, plain_page, response_head

logger = logging.getLogger(__name__)

T = TypeVar("T")

Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""Pages by their paths."""

_BACKLOG = 16
_ACCEPT_AGAIN_S = 0.1
_SHUTDOWN_S = 1.0
"""For a client to confirm the end of its TLS connection."""
_EVICTABLE_S = 1.0
"""A connection that has waited for so long without a request gives way to a new one."""


@dataclass(frozen=True, slots=True)
class HttpPeer:
    host: str
    certificate: bytes | None = None
    """The certificate of the client, verified by TLS, in DER."""


Guard = Callable[[HttpRequest, HttpPeer], Awaitable[Page | None]]
"""Returns None if a request gets its page, else what it is answered with. Also asked for unknown paths."""


class PortTaken(ConfigurationError):
    """Another program listens on the port."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    connections: int = 32
    connections_per_host: int = 16
    """One client that connects all the time does not keep out those that look after the program's health."""
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
    def __init__(
        self,
        pages: Pages,
        limits: HttpLimits | None = None,
        *,
        guard: Guard | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`tls` returns the context for the next connection; None serves plain HTTP."""
        self._pages = pages
        self._guard = guard
        self._tls = tls
        self._waiting: dict[asyncio.Task[None], float] = {}
        """Connections between two requests, and since when; the longest first."""
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._serving: dict[asyncio.Task[None], str] = {}
        """Connections, and where they come from."""
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen as `bind` does."""
        await self.start_on(bind(host, port))
        self.host = host or "0.0.0.0"  # nosec B104

    async def start_on(self, sock: socket.socket) -> None:
        """Listen on a socket that `bind` has made."""
        self.host, self.port = sock.getsockname()[:2]
        if self._tls is None:
            self._server = await asyncio.start_server(
                self._connected, sock=sock, limit=self._limits.head_bytes
            )
        else:
            self._accepting = asyncio.ensure_future(self._accept_tls(sock, self._tls))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving[asyncio.ensure_future(self._accept(reader, writer))] = _peer(writer).host

    async def _accept_tls(self, sock: socket.socket, tls: Callable[[], ssl.SSLContext]) -> None:
        """Accept connections, which count from before their handshakes."""
        loop = asyncio.get_running_loop()
        with sock:
            sock.setblocking(False)
            while True:
                try:
                    accepted, address = await loop.sock_accept(sock)
                except OSError as error:
                    logger.warning("a connection to the HTTP port could not be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                host = str(address[0])
                if not self._has_room(host, 1):
                    accepted.close()
                    continue
                self._serving[asyncio.ensure_future(self._shake_hands(accepted, tls()))] = host

    async def _shake_hands(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        reader = asyncio.StreamReader(self._limits.head_bytes)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._wait(
                loop.connect_accepted_socket(
                    lambda: protocol,
                    sock,
                    ssl=context,
                    ssl_handshake_timeout=self._limits.head_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
            )
        except (OSError, asyncio.CancelledError):
            # It does not speak TLS, does not accept the certificate, or is too slow.
            sock.close()
            self._serving.pop(task, None)
            return
        # A cast: uvloop's transports are no subclasses of asyncio's.
        writer = asyncio.StreamWriter(cast(asyncio.WriteTransport, transport), protocol, reader, loop)
        await self._accept(reader, writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone, or too slow to be waited for
        except asyncio.CancelledError:
            pass  # the server stops: this task has no one else who awaits it
        finally:
            self._serving.pop(task, None)
            self._waiting.pop(task, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # a client that takes nothing must not keep its buffer here
            else:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limits = self._limits
        # To have drained is to have handed everything to the kernel. Not 0 for TLS: uvloop would never resume.
        writer.transport.set_write_buffer_limits(0 if self._tls is None else 1, 0)
        peer = _peer(writer)
        if not self._has_room(peer.host):
            await self._send(writer, plain_page(503, "too many connections"), keeps_alive=False)
            return
        patience_s = limits.head_s
        keeps_alive = True
        while keeps_alive:
            try:
                head = await self._read_head(reader, patience_s)
                request = parse_head(head)
            except asyncio.LimitOverrunError:
                await self._send(writer, plain_page(431, "the head is too long"), keeps_alive=False)
                return
            except BadRequest as error:
                await self._send(writer, plain_page(error.status, str(error)), keeps_alive=False)
                return
            keeps_alive = request.keeps_alive
            page = await self._page(request, peer)
            if page.delay_s:
                await self._wait(asyncio.sleep(page.delay_s))
            # Whoever guesses passwords connects again for each.
            keeps_alive = keeps_alive and page.status != 401
            await self._send(writer, page, keeps_alive=keeps_alive, head_only=request.method == "HEAD")
            patience_s = limits.idle_s

    async def _read_head(self, reader: asyncio.StreamReader, patience_s: float) -> bytes:
        async with asyncio.timeout(patience_s):
            return await self._wait(reader.readuntil(b"\r\n\r\n"))

    async def _wait(self, event: Awaitable[T]) -> T:
        """Wait for an event of one connection, which may be closed for another one meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = asyncio.get_running_loop().time()
        try:
            return await event
        finally:
            self._waiting.pop(task, None)

    def _has_room(self, host: str, more: int = 0) -> bool:
        """Return whether there is room for this many more connections; close an idle one to make room."""
        of_host = sum(one == host for one in self._serving.values())
        if of_host + more > self._limits.connections_per_host:
            return self._evict(host)
        return len(self._serving) + more <= self._limits.connections or self._evict()

    def _evict(self, host: str | None = None) -> bool:
        """Close the connection (of the host) that has waited longest, if it has waited for a while."""
        for task, since in self._waiting.items():
            if host is not None and self._serving.get(task) != host:
                continue
            if asyncio.get_running_loop().time() - since < _EVICTABLE_S:
                return False
            del self._waiting[task]
            task.cancel()
            return True
        return False

    async def _page(self, request: HttpRequest, peer: HttpPeer) -> Page:
        if self._guard is not None:
            try:
                refusal = await self._guard(request, peer)
            except Exception:
                logger.exception("whether the page %s may be read could not be decided", request.path)
                return plain_page(500, "the request could not be judged; see the log")
            if refusal is not None:
                return refusal
        make = self._pages.get(request.path)
        if make is None:
            return plain_page(404, f"there is no such page; there are {', '.join(sorted(self._pages))}")
        if request.method not in ("GET", "HEAD"):
            return plain_page(405, "pages can only be read")
        try:
            return await make()
        except Exception:
            logger.exception("the page %s could not be made", request.path)
            return plain_page(500, "the page could not be made; see the log")

    async def _send(
        self, writer: asyncio.StreamWriter, page: Page, *, keeps_alive: bool, head_only: bool = False
    ) -> None:
        writer.write(response_head(page, keeps_alive=keeps_alive) + (b"" if head_only else page.body))
        async with asyncio.timeout(self._limits.send_s):
            await writer.drain()


def _peer(writer: asyncio.StreamWriter) -> HttpPeer:
    name = writer.get_extra_info("peername")
    tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
    return HttpPeer(
        str(name[0]) if name else "?", tls.getpeercert(binary_form=True) if tls is not None else None
    )


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
        words = f"Cannot listen on {host or '0.0.0.0'}:{port} for HTTP ({option}): {error.strerror}."  # nosec B104
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"{words} Choose {alternatives}.") from error
        raise ConfigurationError(words) from error
