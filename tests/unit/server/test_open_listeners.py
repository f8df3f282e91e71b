"""Listeners that change while the server runs: opened, closed, taken over, and changes that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flintmq.effects.real import LoopExecutor
from flintmq.errors import ConfigurationError
from flintmq.server import open_listeners
from flintmq.server.listeners import Server
from flintmq.settings import BrokerConfig, Listener, load
from support.broker.loopback import Client, LoopFactory, ScriptedDispatcher, framed, run_on
from support.tls.certificates import CertificateFiles
from support.tls.tls_client import TlsClient, client_context

GRACE_S = 5.0
FIRST = "PLAINTEXT://127.0.0.1:0"


def config_of(listeners: str, **settings: str) -> BrokerConfig:
    given = {"listeners": listeners} | {name.replace("_", "."): text for name, text in settings.items()}
    return load(command_line=list(given.items()), environ={}).broker


class Running:
    """A server whose listeners a test changes."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.executor, self.dispatcher = LoopExecutor(self.loop, 1), ScriptedDispatcher()
        self.config = config_of(FIRST)
        self.server = Server(
            loop=self.loop, dispatcher=self.dispatcher, executor=self.executor, config=lambda: self.config
        )

    async def change(self, listeners: str, **settings: str) -> None:
        config = config_of(listeners, **settings)
        change = await self.server.prepare(config)
        self.config = config
        await change.commit()

    async def socket(self, listener: Listener) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await self.loop.sock_connect(sock, (listener.host, listener.port))
        return sock

    async def connect(self, listener: Listener) -> Client:
        return Client(self.loop, await self.socket(listener))

    async def echoes(self, client: Client) -> bool:
        await client.send(framed(b"E"))
        return await client.frame() == b"E"


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    one = Running()
    try:
        await one.server.start()
        yield one
        await one.server.stop(GRACE_S)
    finally:
        one.executor.close()


async def is_closed(client: Client) -> bool:
    try:
        await client.read(1)
    except (EOFError, ConnectionError):
        return True
    return False


async def refuses(one: Running, listener: Listener) -> bool:
    try:
        sock = await one.socket(listener)
    except ConnectionRefusedError:
        return True
    sock.close()
    return False


def test_a_listener_is_opened_and_another_closed(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            early = await one.connect(first)
            assert await one.echoes(early)

            await one.change(
                f"{FIRST},EXTERNAL://127.0.0.1:0", listener_security_protocol_map="EXTERNAL:PLAINTEXT"
            )
            kept, second = one.server.bound
            assert (kept, second.name) == (first, "EXTERNAL")
            late = await one.connect(second)
            assert await one.echoes(early)
            assert await one.echoes(late)

            await one.change("EXTERNAL://127.0.0.1:0", listener_security_protocol_map="EXTERNAL:PLAINTEXT")
            assert one.server.bound == [second]
            assert await is_closed(early)
            assert await refuses(one, first)
            assert await one.echoes(late)

    run_on(loop_factory, scenario())


def test_one_address_of_a_name_is_closed_and_the_other_keeps_its_connections(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            await one.change(f"{first},PLAINTEXT://127.0.0.2:{first.port}")
            clients = [await one.connect(listener) for listener in one.server.bound]
            assert [await one.echoes(client) for client in clients] == [True, True]

            await one.change(f"PLAINTEXT://127.0.0.2:{first.port}")
            assert await is_closed(clients[0])
            assert await one.echoes(clients[1])

    run_on(loop_factory, scenario())


def test_what_was_dispatched_is_answered_before_a_connection_is_closed(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with running() as one:
            client = await one.connect(one.server.bound[0])
            await client.send(framed(b"W1") + framed(b"P1"))
            await one.dispatcher.received(2)
            await one.change("OTHER://127.0.0.1:0", listener_security_protocol_map="OTHER:PLAINTEXT")

            # Not dispatched: the client sends it to another listener later.
            await client.send(framed(b"E-late"))
            one.dispatcher.answer(b"W1")
            assert [await client.frame(), await client.frame()] == [b"W1", b"P1"]
            assert await is_closed(client)
            assert one.dispatcher.frames == [b"W1", b"P1"]

    run_on(loop_factory, scenario())


def test_a_request_that_is_never_answered_does_not_keep_a_connection(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_listeners, "DRAIN_S", 0.05)

    async def scenario() -> None:
        async with running() as one:
            client = await one.connect(one.server.bound[0])
            await client.send(framed(b"W1"))
            await one.dispatcher.received(1)
            await one.change("OTHER://127.0.0.1:0", listener_security_protocol_map="OTHER:PLAINTEXT")
            assert await is_closed(client)

    run_on(loop_factory, scenario())


def test_a_port_that_is_taken_changes_nothing(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            client = await one.connect(first)
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                other.listen()
                taken = other.getsockname()[1]
                wanted = f"A://127.0.0.1:0,B://127.0.0.1:{taken}"
                with pytest.raises(
                    ConfigurationError, match=f"B://127.0.0.1:{taken}.*Nothing has been changed"
                ):
                    await one.change(wanted, listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT")
            with pytest.raises(ConfigurationError, match=f"the broker itself listens on {first}"):
                await one.change(f"PLAINTEXT://0.0.0.0:{first.port}")
            assert one.server.bound == [first]
            assert await one.echoes(client)
            assert await one.echoes(await one.connect(first))

    run_on(loop_factory, scenario())


def test_an_abandoned_change_closes_what_it_bound(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            change = await one.server.prepare(config_of(f"{FIRST},PLAINTEXT://127.0.0.1:{port}"))
            change.abandon()
            assert one.server.bound == [first]
            await asyncio.sleep(0)
            assert await refuses(one, Listener("PLAINTEXT", "127.0.0.1", port))

    run_on(loop_factory, scenario())


def test_a_certificate_that_cannot_be_used_changes_nothing(loop_factory: LoopFactory, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("nothing")

    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            with pytest.raises(ConfigurationError, match="Listener SSL"):
                await one.change(
                    f"{FIRST},SSL://127.0.0.1:0", ssl_keystore_location=str(tmp_path / "key.pem")
                )
            assert one.server.bound == [first]
            assert one.server.certificate_expiry() == {}

    run_on(loop_factory, scenario())


def test_tls_takes_over_the_port_of_a_plaintext_listener(loop_factory: LoopFactory, tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)

    async def scenario() -> None:
        async with running() as one:
            (first,) = one.server.bound
            plain = await one.connect(first)
            assert await one.echoes(plain)
            await one.change(f"SSL://127.0.0.1:{first.port}", ssl_keystore_location=str(files.keystore))
            assert await is_closed(plain)
            (secure,) = one.server.bound
            client = TlsClient(one.loop, await one.socket(secure), client_context(), host="localhost")
            await client.handshake()
            await client.send(framed(b"E"))
            assert await client.frame() == b"E"
            assert list(one.server.certificate_expiry()) == ["SSL"]

            await one.change(f"PLAINTEXT://127.0.0.1:{first.port}")
            assert one.server.certificate_expiry() == {}
            assert await one.echoes(await one.connect(first))

    run_on(loop_factory, scenario())


def test_a_stop_ends_connections_of_closed_listeners_too(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with running() as one:
            client = await one.connect(one.server.bound[0])
            await client.send(framed(b"W1"))
            await one.dispatcher.received(1)
            await one.change("OTHER://127.0.0.1:0", listener_security_protocol_map="OTHER:PLAINTEXT")
            stopping = asyncio.ensure_future(one.server.stop(GRACE_S))
            one.dispatcher.answer(b"W1")
            assert await client.frame() == b"W1"
            await stopping
            assert await is_closed(client)

    run_on(loop_factory, scenario())
