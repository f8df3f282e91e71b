"""A server with a scripted dispatcher and listeners with TLS, on the loop of the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from flintmq.effects.real import LoopExecutor
from flintmq.server.connection import Connection
from flintmq.server.listeners import Server, SweepLimits
from flintmq.settings import load
from support.broker.loopback import Client, ScriptedDispatcher
from support.tls.tls_client import TlsClient, client_context

GRACE_S = 5.0
# Files and idle connections are looked at only when a test says so.
_NO_SWEEP = SweepLimits(interval_s=3600.0)


class TlsServer:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        self.executor = LoopExecutor(self.loop, 1)
        self.dispatcher = ScriptedDispatcher()
        self.configure(settings)
        self.server = Server(
            loop=self.loop,
            dispatcher=self.dispatcher,
            executor=self.executor,
            config=lambda: self.config,
            sweep_limits=_NO_SWEEP,
        )

    def configure(self, settings: Mapping[str, str]) -> None:
        self.config = load(
            command_line=[("connections.max.idle.ms", "0"), *settings.items()], environ={}
        ).broker

    async def socket(self, at: int = 0) -> socket.socket:
        listener = self.server.bound[at]
        sock = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
        sock.setblocking(False)
        await self.loop.sock_connect(sock, (listener.host, listener.port))
        return sock

    async def raw(self, at: int = 0) -> Client:
        """A client that speaks no TLS by itself."""
        return Client(self.loop, await self.socket(at))

    async def connect(
        self, context: ssl.SSLContext | None = None, *, host: str | None = "localhost", at: int = 0
    ) -> TlsClient:
        client = TlsClient(self.loop, await self.socket(at), context or client_context(), host=host)
        await client.handshake()
        return client

    async def refreshed(self) -> None:
        """Certificates whose settings or files changed are in force."""
        self.server.refresh_certificates()
        task = self.server._refreshing
        assert task is not None
        await task

    @property
    def connection(self) -> Connection:
        """The newest one."""
        return self.server.connections[-1]


@asynccontextmanager
async def tls_serving(settings: Mapping[str, str]) -> AsyncIterator[TlsServer]:
    one = TlsServer(settings)
    try:
        await one.server.start()
        yield one
        await one.server.stop(GRACE_S)
    finally:
        one.executor.close()
