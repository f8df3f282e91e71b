"""Listening sockets and the connections that came by them: ports, limits, idleness, the end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flintmq.effects.real import LoopExecutor
from flintmq.server import listeners
from flintmq.server.connection import Connection
from flintmq.server.listeners import Server
from flintmq.settings import load
from support.broker.ipv6 import needs_ipv6
from support.broker.loopback import Client, LoopFactory, ScriptedDispatcher, framed, run_on

GRACE_S = 5.0


@asynccontextmanager
async def serving(**settings: str) -> AsyncIterator[tuple[Server, ScriptedDispatcher]]:
    """A server with these settings (underscores for dots), and its scripted dispatcher."""
    given = {"listeners": "PLAINTEXT://127.0.0.1:0"} | {k.replace("_", "."): v for k, v in settings.items()}
    config = load(command_line=list(given.items()), environ={}).broker
    loop = asyncio.get_running_loop()
    executor, dispatcher = LoopExecutor(loop, 1), ScriptedDispatcher()
    server = Server(loop=loop, dispatcher=dispatcher, executor=executor, config=lambda: config)
    await server.start()
    try:
        yield server, dispatcher
    finally:
        await server.stop(GRACE_S)
        executor.close()


async def connect(server: Server, at: int = 0) -> Client:
    listener = server.bound[at]
    sock = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (listener.host, listener.port))
    return Client(loop, sock)


@needs_ipv6
def test_connections_know_their_listener_and_both_ends(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        listeners = "ONE://127.0.0.1:0,TWO://[::1]:0"
        async with serving(
            listeners=listeners, listener_security_protocol_map="ONE:PLAINTEXT,TWO:PLAINTEXT"
        ) as (server, _):
            clients = [await connect(server, at) for at in range(2)]
            for client in clients:
                await client.ask(b"E")
            sessions = [connection.session for connection in server.connections]
            assert [(s.listener, s.local_host, s.local_port) for s in sessions] == [
                (one.name, one.host, one.port) for one in server.bound
            ]
            assert [s.peer_host for s in sessions] == ["127.0.0.1", "::1"]
            assert sessions[1].peer == f"[::1]:{clients[1].sock.getsockname()[1]}"
            for client in clients:
                client.close()

    run_on(loop_factory, scenario())


def test_answers_are_not_delayed_by_nagle(loop_factory: LoopFactory) -> None:
    """S10: TCP_NODELAY."""

    async def scenario() -> None:
        async with serving() as (server, _):
            client = await connect(server)
            await client.ask(b"E")
            sock = server.connections[0].transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            client.close()

    run_on(loop_factory, scenario())


# ---- limits


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_connections_beyond_the_limit_are_closed_and_those_that_go_make_room(
    loop_factory: LoopFactory, setting: str
) -> None:
    async def scenario() -> None:
        async with serving(**{setting: "2"}) as (server, _):
            clients = [await connect(server), await connect(server)]
            for client in clients:
                assert await client.ask(b"E") == b"E"
            refused = await connect(server)
            assert await refused.closed() == b""
            assert await clients[0].ask(b"E") == b"E"
            clients[0].close()
            while True:
                # The end of the other connection is seen by the server when it is seen.
                again = await connect(server)
                await again.send(framed(b"E"))
                try:
                    assert await again.frame() == b"E"
                    break
                except (EOFError, OSError):
                    again.close()
            again.close()
            clients[1].close()

    run_on(loop_factory, scenario())


def test_a_quiet_connection_is_closed_and_a_busy_or_waiting_one_is_not(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with serving(connections_max_idle_ms="200") as (server, dispatcher):
            quiet, waiting = await connect(server), await connect(server)
            assert await quiet.ask(b"E") == b"E"
            await waiting.send(framed(b"P1"))
            assert await quiet.closed() == b""
            dispatcher.answer(b"P1")
            assert await waiting.frame() == b"P1"
            # It waited for longer than the limit, and is not idle because of that.
            assert await waiting.ask(b"E") == b"E"
            assert await waiting.closed() == b""

    run_on(loop_factory, scenario())


def swept(server: Server, connection: Connection, quiet_s: float) -> bool:
    """Whether the sweep closes a connection that was quiet for so long."""
    connection.active_at = asyncio.get_running_loop().time() - quiet_s
    server._sweep_idle()
    return connection.transport.is_closing()


@pytest.mark.parametrize("idle_ms", ["0", "-1"])
def test_without_an_idle_limit_only_stalled_frames_end_a_connection(
    loop_factory: LoopFactory, idle_ms: str
) -> None:
    async def scenario() -> None:
        async with serving(connections_max_idle_ms=idle_ms) as (server, _):
            client = await connect(server)
            assert await client.ask(b"E") == b"E"
            (connection,) = server.connections
            assert not swept(server, connection, 1e6)
            await client.send(framed(b"E") + framed(b"E-unfinished")[:-1])
            assert await client.frame() == b"E"
            assert not swept(server, connection, listeners.SweepLimits().frame_stall_s / 2)
            assert swept(server, connection, listeners.SweepLimits().frame_stall_s + 1)
            client.close()

    run_on(loop_factory, scenario())


def test_a_client_that_takes_its_answers_slowly_is_not_idle(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            client = await connect(server)
            await client.ask(b"E")
            (connection,) = server.connections
            connection.outbound.progressed = True
            assert not swept(server, connection, 1e6)
            assert swept(server, connection, 1e6)
            client.close()

    run_on(loop_factory, scenario())


# ---- the end


def test_stopping_answers_long_polls_waits_for_writes_and_closes(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with serving() as (server, dispatcher):
            client, idle = await connect(server), await connect(server)
            await idle.ask(b"E")
            await client.send(framed(b"P1") + framed(b"W2"))
            await dispatcher.until(lambda: len(dispatcher.parked) == 2)
            stopping = asyncio.ensure_future(server.stop(GRACE_S))
            assert await client.frame() == b"P1"
            assert not stopping.done()
            dispatcher.answer(b"W2")
            assert await client.frame() == b"W2"
            assert await client.closed() == b""
            assert await idle.closed() == b""
            await stopping
            assert not server.connections
            with pytest.raises(ConnectionRefusedError):
                await connect(server)
            client.close()
            idle.close()

    run_on(loop_factory, scenario())


def test_stopping_does_not_wait_for_ever(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with serving() as (server, dispatcher):
            client = await connect(server)
            await client.send(framed(b"W1"))
            await dispatcher.received(1)
            await server.stop(0.05)
            assert not server.connections
            assert await client.closed() == b""
            client.close()

    run_on(loop_factory, scenario())


def test_a_client_that_keeps_sending_does_not_keep_the_broker_from_stopping(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        async with serving() as (server, dispatcher):
            client = await connect(server)

            async def send_for_ever() -> None:
                while True:
                    await client.send(framed(b"N" * 1000))

            sending = asyncio.ensure_future(send_for_ever())
            await dispatcher.received(10)
            await server.stop(GRACE_S)
            assert not server.connections
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await sending
            client.close()

    run_on(loop_factory, scenario())


def test_junk_on_one_listener_leaves_the_server_well(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with serving(socket_request_max_bytes="1000") as (server, _):
            for junk in (b"GET / HTTP/1.0\r\n\r\n", struct.pack(">i", 1001), bytes(4)):
                client = await connect(server)
                await client.send(junk)
                assert await client.closed() == b""
                client.close()
            client = await connect(server)
            assert await client.ask(b"E") == b"E"
            client.close()

    run_on(loop_factory, scenario())
