"""The HTTP listener: pages in, limits held, never anything that waits for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from flintmq.errors import ConfigurationError
from flintmq.http.request import Page
from flintmq.http.server import HttpLimits, HttpServer, PortTaken, json_page

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
LARGE = 4 * 1024 * 1024
SLOW = HttpLimits(head_s=30.0, idle_s=30.0, send_s=30.0)


async def hello() -> Page:
    return json_page({"hello": "world"})


async def large() -> Page:
    return Page(b"x" * LARGE, "text/plain")


async def broken() -> Page:
    raise RuntimeError("a bug")


PAGES = {"/": hello, "/large": large, "/broken": broken}


def run(scenario: Callable[[HttpServer, Connect], Awaitable[None]], limits: HttpLimits = SLOW) -> None:
    async def all_of_it() -> None:
        server = HttpServer(PAGES, limits)
        await server.start("127.0.0.1", 0)
        writers: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(20):
                await scenario(server, connect)
        finally:
            for writer in writers:
                writer.close()
            await server.stop()

    asyncio.run(all_of_it())


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), fields, await reader.readexactly(int(fields["Content-Length"]))


def test_requests_of_one_connection_are_answered_one_after_the_other() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\nGET /large HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\n\r\n")
        status, fields, body = await answer(reader)
        assert (status, fields["Connection"], body) == (200, "keep-alive", b'{\n  "hello": "world"\n}\n')
        status, _, body = await answer(reader)
        assert (status, len(body)) == (200, LARGE)
        status, _, body = await answer(reader)
        assert status == 404
        assert b"/large" in body

    run(scenario)


def test_a_connection_that_is_to_end_gets_its_whole_answer_first() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET /large HTTP/1.1\r\nConnection: close\r\n\r\n")
        _, fields, body = await answer(reader)
        assert (fields["Connection"], len(body)) == ("close", LARGE)
        assert await reader.read() == b""

    run(scenario)


def test_head_gets_the_head_alone() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"HEAD /large HTTP/1.1\r\nConnection: close\r\n\r\n")
        whole = await reader.read()
        assert f"Content-Length: {LARGE}\r\n".encode() in whole
        assert whole.endswith(b"\r\n\r\n")

    run(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_pages_can_only_be_read(method: str) -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(f"{method} / HTTP/1.1\r\n\r\n".encode())
        status, fields, _ = await answer(reader)
        assert (status, fields["Allow"]) == (405, "GET, HEAD")

    run(scenario)


def test_a_bug_in_a_page_is_answered_and_the_next_page_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET /broken HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[0] == 500
        assert (await answer(reader))[0] == 200

    run(scenario)
    assert "a bug" in caplog.text


def test_a_head_that_does_not_end_is_refused() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000)
        assert (await answer(reader))[0] == 431
        assert await reader.read() == b""

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
def test_a_client_that_says_nothing_or_stops_is_not_waited_for(sent: bytes) -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(sent)
        assert await reader.read() == b""

    run(scenario, HttpLimits(head_s=0.05))


def test_a_client_that_does_not_ask_again_is_not_waited_for() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[0] == 200
        assert await reader.read() == b""

    run(scenario, HttpLimits(idle_s=0.05))


def test_a_client_that_does_not_read_is_cut_off() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[0] == 200
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\n\r\n" * 4)
        (serving,) = server._serving
        await serving

    run(scenario, HttpLimits(send_s=0.1))


def test_connections_beyond_the_limit_are_turned_away_and_the_others_served() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        first_reader, first_writer = await connect()
        second_reader, second_writer = await connect()
        for reader, writer in ((first_reader, first_writer), (second_reader, second_writer)):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await answer(reader))[0] == 200
        third, _ = await connect()
        assert (await answer(third))[0] == 503
        assert await third.read() == b""
        first_writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(first_reader))[0] == 200

    run(scenario, HttpLimits(connections=2))


def test_stopping_does_not_wait_for_clients() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[0] == 200
        await server.stop()
        assert await reader.read() == b""

    run(scenario)


def test_a_port_that_is_taken_is_told_apart() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        with pytest.raises(PortTaken, match=r"flint\.rest\.port"):
            await HttpServer(PAGES).start("127.0.0.1", server.port)
        with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"):
            await HttpServer(PAGES).start("192.0.2.1", 0)

    run(scenario)


@pytest.mark.parametrize(("host", "url"), [("", "http://0.0.0.0:"), ("127.0.0.1", "http://127.0.0.1:")])
def test_the_address_is_told_as_a_browser_wants_it(host: str, url: str) -> None:
    async def scenario() -> None:
        server = HttpServer(PAGES)
        await server.start(host, 0)
        try:
            assert server.url == f"{url}{server.port}"
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await answer(reader))[0] == 200
            writer.close()
        finally:
            await server.stop()

    asyncio.run(scenario())


def test_a_connection_that_idles_gives_way_to_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.http.server._EVICTABLE_S", 0.0)

    async def scenario(server: HttpServer, connect: Connect) -> None:
        first, _ = await connect()
        _, second = await connect()
        second.write(b"GET / HTTP/1.1\r\n\r\n")
        third, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        status, _, _ = await answer(third)
        assert status == 200
        assert await first.read() == b""

    run(scenario, HttpLimits(connections=2, head_s=30.0, idle_s=30.0))


def test_one_host_does_not_keep_others_out() -> None:
    async def scenario(server: HttpServer, connect: Connect) -> None:
        for _ in range(2):
            await connect()
        third, _ = await connect()
        assert (await answer(third))[0] == 503
        # As a liveness probe comes from another address.
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(reader))[0] == 200
        writer.close()

    run(scenario, HttpLimits(connections=4, connections_per_host=2, head_s=30.0))


def test_a_response_that_is_held_back_gives_way_to_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.http.server._EVICTABLE_S", 0.0)

    async def late() -> Page:
        return Page(b"", "text/plain", 401, delay_s=30.0)

    async def scenario(server: HttpServer, connect: Connect) -> None:
        first, guessing = await connect()
        guessing.write(b"GET /late HTTP/1.1\r\n\r\n")
        while not server._waiting:  # noqa: ASYNC110 (nobody reports it)
            await asyncio.sleep(0)
        second, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await answer(second))[0] == 200
        assert await first.read() == b""

    monkeypatch.setitem(PAGES, "/late", late)
    run(scenario, HttpLimits(connections=1, head_s=30.0, idle_s=30.0))
