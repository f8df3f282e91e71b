"""Frames through TLS: the same order, bounds and back-pressure as without it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from flintmq.effects.real import RealDisk
from flintmq.metrics import QuotaCounters
from flintmq.security.quotas.client_quotas import ClientLimits
from flintmq.security.quotas.rate import SampledRate
from flintmq.server.connection import BACKLOG_BYTES_MAX
from flintmq.storage.segment import FileRange
from support.broker.loopback import LoopFactory, framed, run_on
from support.tls.certificates import CertificateFiles
from support.tls.tls_client import client_context
from support.tls.tls_server import tls_serving

HUGE = 5 * 1024 * 1024


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_are_answered_in_both_versions(
    loop_factory: LoopFactory, files: CertificateFiles, version: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect(client_context(version=version))
            assert await client.ask(b"E-hello") == b"E-hello"
            session = server.connection.session
            assert (session.security_protocol, str(session.principal)) == ("SSL", "User:ANONYMOUS")
            assert server.server.unauthenticated == 0

    run_on(loop_factory, scenario())


def test_frames_arrive_whole_wherever_records_are_split(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            data = framed(b"E-first") + framed(b"E-second, a longer one")
            for split in range(1, len(data)):
                client.tls.write(data[:split])
                client.tls.write(data[split:])
                encrypted = client.outgoing.read()
                half = len(encrypted) * split // len(data)
                await client._loop.sock_sendall(client.sock, encrypted[:half])
                await asyncio.sleep(0)
                await client._loop.sock_sendall(client.sock, encrypted[half:])
                assert await client.frame() == b"E-first"
                assert await client.frame() == b"E-second, a longer one"

    run_on(loop_factory, scenario())


def test_many_frames_at_once_are_dispatched_in_order(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            sent = [b"E%d" % number for number in range(5000)]
            await client.send(b"".join(map(framed, sent)))
            assert [await client.frame() for _ in sent] == sent

    run_on(loop_factory, scenario())


def test_large_frames_and_large_answers_come_whole(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            data = b"E" + os.urandom(HUGE)
            assert await client.ask(data) == data
            assert len(await client.ask(b"L%d" % HUGE)) == HUGE
            assert await client.ask(b"E-after") == b"E-after"

    run_on(loop_factory, scenario())


class WithoutDescriptor:
    """A file that can only be read, as one of a simulated disk or a plugin."""

    path = "memory"
    fd = -1

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_file_ranges_are_sent_between_buffers(
    loop_factory: LoopFactory, files: CertificateFiles, tmp_path: Path, has_descriptor: bool
) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(data)

    def range_of(position: int, size: int) -> FileRange:
        if has_descriptor:
            return FileRange(RealDisk().open(str(tmp_path / "log"), writable=False), position, size)
        return FileRange(WithoutDescriptor(data), position, size)  # type: ignore[arg-type]

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            server.dispatcher.responses[b"F"] = [b"[", range_of(1000, 2_500_000), b"|", range_of(0, 7), b"]"]
            await client.send(framed(b"F") + framed(b"E-after"))
            expected = b"[" + data[1000:2_501_000] + b"|" + data[:7] + b"]"
            assert await client.read(len(expected)) == expected
            assert await client.frame() == b"E-after"

    run_on(loop_factory, scenario())


def test_a_file_that_is_shorter_than_promised_ends_the_connection(
    loop_factory: LoopFactory, files: CertificateFiles, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"x" * 1000)

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            file = RealDisk().open(str(tmp_path / "log"), writable=False)
            server.dispatcher.responses[b"F"] = [FileRange(file, 0, 2000)]
            await client.send(framed(b"F"))
            with pytest.raises((EOFError, ConnectionResetError)):
                await client.read(2000)

    run_on(loop_factory, scenario())


# ---- back-pressure


def test_nothing_behind_a_barrier_is_decrypted_before_it_is_answered(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            later = [b"E%d-%s" % (number, bytes(20_000)) for number in range(100)]
            # More than one read of the socket: some of it waits encrypted, some decrypted, some in the kernel.
            sending = asyncio.ensure_future(client.send(framed(b"B") + b"".join(map(framed, later))))
            await server.dispatcher.received(1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert server.dispatcher.frames == [b"B"]
            server.dispatcher.answer(b"B")
            assert await client.frame() == b"B"
            assert [await client.frame() for _ in later] == later
            await sending

    run_on(loop_factory, scenario())


def test_a_client_that_takes_no_answers_is_not_read_from(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            count = 40
            for number in range(count):
                await client.send(framed(b"L%d" % (300_000 + number)))
            await server.dispatcher.until(lambda: server.connection.is_paused)
            outbound = server.connection.outbound
            assert len(server.dispatcher.frames) < count
            assert outbound.held_bytes <= BACKLOG_BYTES_MAX + 400_000
            assert [len(await client.frame()) for _ in range(count)] == [300_000 + n for n in range(count)]
            assert outbound.pending_bytes == 0

    run_on(loop_factory, scenario())


# ---- the end


def test_close_notify_is_sent_when_the_server_stops(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            await client.ask(b"E")
        assert await client.notified_of_the_end()

    run_on(loop_factory, scenario())


def test_close_notify_of_the_client_closes_the_connection(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            client.tls.write(framed(b"E-last"))
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
            await client.flush()
            await client.closed()
            assert server.dispatcher.frames == [b"E-last"]

    run_on(loop_factory, scenario())


def test_a_half_closed_client_is_closed(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            await client.ask(b"E")
            client.sock.shutdown(socket.SHUT_WR)
            await client.closed()

    run_on(loop_factory, scenario())


def test_damaged_records_close_the_connection(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            client.tls.write(framed(b"E"))
            encrypted = bytearray(client.outgoing.read())
            encrypted[-1] ^= 1
            await client._loop.sock_sendall(client.sock, bytes(encrypted))
            await client.closed()
            assert server.dispatcher.frames == []

    run_on(loop_factory, scenario())
    assert "its TLS records are damaged" in caplog.text


def test_a_throttled_client_goes_on_with_what_was_decrypted_before(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    """All frames are in one record, of which a part is taken; nothing more arrives after the throttle time."""

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.connect()
            assert await client.ask(b"E-hello") == b"E-hello"
            rate = SampledRate(1000.0, 11, 1.0, 0.0)
            server.connection.session.limits = ClientLimits(QuotaCounters(), rate, None, None, None)
            server.dispatcher.throttle_s = 0.02
            frames = [b"T%d" % at + bytes(2990) for at in range(5)]
            await client.send(b"".join(map(framed, frames)))
            assert [await client.frame() for _ in frames] == frames

    run_on(loop_factory, scenario())
