"""HTTPS: handshakes that fail or never end cost a connection of the bounded number, and nobody else's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from flintmq.app.serving import new_loop
from flintmq.http.request import HttpRequest, Page
from flintmq.http.server import HttpLimits, HttpPeer, HttpServer, json_page
from support.tls.certificates import CertificateFiles

LIMITS = HttpLimits(connections=3, head_s=1.0)


async def hello() -> Page:
    return json_page({"hello": "world"})


def run(
    tmp_path: Path,
    scenario: Callable[[HttpServer, ssl.SSLContext], Awaitable[None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    peers: list[HttpPeer] | None = None,
) -> None:
    files = CertificateFiles(tmp_path / "certs")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(files.keystore)
    client_side = ssl.create_default_context(cafile=files.ca)

    async def guard(_: HttpRequest, peer: HttpPeer) -> Page | None:
        if peers is not None:
            peers.append(peer)
        return None

    async def all_of_it() -> None:
        server = HttpServer({"/": hello}, LIMITS, guard=guard, tls=lambda: server_side)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                await scenario(server, client_side)
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(all_of_it())


async def get(server: HttpServer, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, new_loop])
def test_pages_are_served_over_tls(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    peers: list[HttpPeer] = []

    async def scenario(server: HttpServer, context: ssl.SSLContext) -> None:
        assert server.url.startswith("https://")
        for _ in range(10):
            assert (await get(server, context)).startswith(b"HTTP/1.1 200 OK")

    run(tmp_path, scenario, loop_factory, peers)
    assert peers == [HttpPeer("127.0.0.1")] * 10


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, new_loop])
def test_handshakes_that_never_end_are_bounded_in_number_and_time(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario(server: HttpServer, context: ssl.SSLContext) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(LIMITS.connections)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""  # one too many: closed at once
        for held, _ in silent:
            assert await held.read() == b""  # after `head_s`
        assert (await get(server, context)).startswith(b"HTTP/1.1 200 OK")
        for other in (writer, *(one for _, one in silent)):
            other.close()

    run(tmp_path, scenario, loop_factory)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, new_loop])
def test_plain_http_gets_no_page(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario(server: HttpServer, context: ssl.SSLContext) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        assert (await get(server, context)).startswith(b"HTTP/1.1 200 OK")

    run(tmp_path, scenario, loop_factory)
