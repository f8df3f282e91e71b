"""The pump of a connection with TLS: cold files, turns, and what waits for the socket."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.effects.real import LoopExecutor, RealDisk
from flintmq.server.tls.outbound import GATHERED_BYTES, TlsOutbound
from flintmq.storage.segment import FileRange
from support.broker.loopback import LoopFactory, run_on
from support.tls.certificates import CertificateFiles
from support.tls.tls_client import client_context


class Pair:
    """A pump with an established TLS session at one end of a socket pair; the test reads the other."""

    def __init__(self, files: CertificateFiles) -> None:
        self.loop = asyncio.get_running_loop()
        self.executor = LoopExecutor(self.loop, 1)
        here, self.there = socket.socketpair()
        here.setblocking(False)
        self.there.setblocking(False)
        self.here = here
        self.aborted = asyncio.Event()
        self.drained = asyncio.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.keystore)
        context.num_tickets = 0
        incoming, outgoing, sent = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        self._received = ssl.MemoryBIO()
        self._client = client_context().wrap_bio(self._received, sent, server_hostname="localhost")
        for engine in (self._client, tls, self._client, tls):
            try:
                engine.do_handshake()
            except ssl.SSLWantReadError:
                pass
            incoming.write(sent.read())
            self._received.write(outgoing.read())
        self.outbound = TlsOutbound(
            here.fileno(),
            gathered=memoryview(bytearray(GATHERED_BYTES)),
            watcher=self.loop,
            executor=self.executor,
            abort=self.aborted.set,
            drained=self.drained.set,
        )
        self.outbound.attach(tls, outgoing)

    async def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                found += self._client.read(1 << 20)
            except ssl.SSLWantReadError:
                self._received.write(await self.loop.sock_recv(self.there, 1 << 20))
        return bytes(found)

    def close(self) -> None:
        self.outbound.close()
        self.here.close()
        self.there.close()
        self.executor.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(3_000_000))
    return path


def with_pair(loop_factory: LoopFactory, files: CertificateFiles, scenario: Callable[[Pair], Any]) -> None:
    async def run() -> None:
        pair = Pair(files)
        try:
            await scenario(pair)
        finally:
            pair.close()

    run_on(loop_factory, run())


@pytest.mark.plain
def test_a_cold_range_is_read_in_a_thread_and_keeps_its_place(
    loop_factory: LoopFactory, files: CertificateFiles, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TlsOutbound, "_is_warm", staticmethod(lambda _: False))
    read_ahead: list[int] = []
    submit = LoopExecutor.submit

    def count(self: LoopExecutor, work: Any, done: Any) -> None:
        read_ahead.append(1)
        submit(self, work, done)

    monkeypatch.setattr(LoopExecutor, "submit", count)

    data = log.read_bytes()

    async def scenario(pair: Pair) -> None:
        file = RealDisk().open(str(log), writable=False)
        pair.outbound.send([b"[", FileRange(file, 0, 1_000_000), b"|", FileRange(file, 5, 10), b"]"])
        pair.outbound.send([b"after"])
        expected = b"[" + data[:1_000_000] + b"|" + data[5:15] + b"]after"
        assert await pair.read(len(expected)) == expected
        assert len(read_ahead) == 2
        assert pair.outbound.pending_bytes == 0

    with_pair(loop_factory, files, scenario)


def test_little_waits_for_a_client_that_does_not_read(
    loop_factory: LoopFactory, files: CertificateFiles, log: Path
) -> None:
    data = log.read_bytes()

    async def scenario(pair: Pair) -> None:
        file = RealDisk().open(str(log), writable=False)
        assert pair.outbound.send([FileRange(file, 0, 3_000_000)]) == 3_000_000
        assert 0 < pair.outbound.held_bytes <= GATHERED_BYTES + 4096
        assert await pair.read(3_000_000) == data
        await pair.drained.wait()
        assert (pair.outbound.pending_bytes, pair.outbound.held_bytes) == (0, 0)

    with_pair(loop_factory, files, scenario)


def test_what_is_corked_is_one_record(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    async def scenario(pair: Pair) -> None:
        pair.outbound.cork()
        for number in range(10):
            pair.outbound.send([b"%d" % number])
        pair.outbound.uncork()
        data = await pair.loop.sock_recv(pair.there, 1 << 16)
        # A record's header says how long it is: there is one.
        assert int.from_bytes(data[3:5], "big") + 5 == len(data)

    with_pair(loop_factory, files, scenario)


def test_a_client_that_is_gone_aborts_the_connection(
    loop_factory: LoopFactory, files: CertificateFiles, log: Path
) -> None:
    async def scenario(pair: Pair) -> None:
        file = RealDisk().open(str(log), writable=False)
        pair.outbound.send([FileRange(file, 0, 3_000_000)])
        pair.there.close()
        await pair.aborted.wait()
        assert pair.outbound.pending_bytes == 0

    with_pair(loop_factory, files, scenario)
