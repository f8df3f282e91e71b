"""The pump: buffers and file ranges reach the socket in order and whole, or the connection is aborted."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from flintmq.broker.request import ResponseBuffers
from flintmq.effects import Buffer
from flintmq.effects.real import RealDisk
from flintmq.server import outbound
from flintmq.server.outbound import Outbound
from flintmq.storage.segment import FileRange
from support.broker.loopback import Client, Loopback, LoopFactory, framed, run_on

MEGABYTE = 1024 * 1024
# A small buffer of the kernel on both sides, so that the pump has to wait often.
SMALL = 16 * 1024


class WithoutDescriptor:
    """A file that cannot be given to sendfile, as those of plugins or of other platforms."""

    fd = -1

    def __init__(self, data: bytes) -> None:
        self.path = "memory"
        self.data = data
        self.reads = 0

    def pread(self, size: int, position: int) -> bytes:
        self.reads += 1
        return self.data[position : position + size]

    def pwrite(self, data: Buffer, position: int) -> None:
        raise NotImplementedError

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def allocate(self, size: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def close(self) -> None: ...


def pattern(size: int, seed: int = 0) -> bytes:
    block = bytes((i * 7 + seed) % 251 for i in range(251 * 16))
    return (block * (size // len(block) + 1))[:size]


def file_of(path: Path, data: bytes) -> FileRange:
    path.write_bytes(data)
    return FileRange(RealDisk().open(str(path), writable=False), 0, len(data))


def descriptors(server: Loopback, folder: Path | None = None) -> set[tuple[str, str]]:
    """Every open descriptor that leads to a socket of this server or its clients, or to a file of the folder.

    No others: clients of other tests may still have threads in this process.
    """
    gc.collect()  # what earlier tests left behind goes now, not in the middle
    ours = _sockets_of(server.address[1])
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that the listing itself needed
        if target in ours or (folder is not None and target.startswith(str(folder))):
            found.add((name, target))
    return found


def _sockets_of(port: int) -> set[str]:
    found = set()
    for path in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with open(path) as table:
            for line in list(table)[1:]:
                fields = line.split()
                ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
                if port in ports:
                    found.add(f"socket:[{fields[9]}]")
    return found


async def exchange(server: Loopback, buffers: ResponseBuffers, client: Client) -> None:
    """Have the server send these buffers as its answer."""
    server.dispatcher.responses[b"X"] = buffers
    await client.send(framed(b"X"))


@pytest.mark.parametrize("receive_buffer", [SMALL, None])
@pytest.mark.parametrize("sendfile", [True, False])
def test_buffers_and_ranges_arrive_in_order_and_whole(
    loop_factory: LoopFactory, tmp_path: Path, receive_buffer: int | None, sendfile: bool
) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=receive_buffer) as server:
            client = await server.connect(receive_buffer=receive_buffer)
            buffers: ResponseBuffers = []
            expected = b""
            for i in range(6):
                head, data = pattern(10 + i, i), pattern(MEGABYTE + i, i)
                buffers.append(head)
                buffers.append(
                    file_of(tmp_path / f"{i}", data)
                    if sendfile
                    else FileRange(WithoutDescriptor(data), 0, len(data))
                )
                expected += head + data
            buffers += [b"tail", bytearray(b"tail"), memoryview(b"tail")]
            expected += b"tail" * 3
            await exchange(server, buffers, client)
            assert await client.read(len(expected)) == expected
            assert server.all[-1].outbound.pending_bytes == 0
            assert await client.ask(b"E-after") == b"E-after"

    run_on(loop_factory, scenario())


def test_a_part_of_a_file_is_sent_from_its_position(loop_factory: LoopFactory, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            whole = file_of(tmp_path / "f", pattern(MEGABYTE))
            await exchange(server, [b"[", FileRange(whole.file, 1000, 500_000), b"]"], client)
            assert await client.read(500_002) == b"[" + pattern(MEGABYTE)[1000:501_000] + b"]"

    run_on(loop_factory, scenario())


def test_more_buffers_than_one_call_takes(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            buffers: ResponseBuffers = [pattern(1000 + i, i) for i in range(500)]
            await exchange(server, buffers, client)
            expected = b"".join(pattern(1000 + i, i) for i in range(500))
            assert await client.read(len(expected)) == expected

    run_on(loop_factory, scenario())


def test_answers_wait_their_turn_behind_an_unfinished_range(
    loop_factory: LoopFactory, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            data = pattern(MEGABYTE // 2)
            server.dispatcher.responses[b"X"] = [file_of(tmp_path / "f", data)]
            await client.send(framed(b"X") + framed(b"E1") + framed(b"E2"))
            await server.dispatcher.received(3)
            assert server.all[-1].outbound.pending_bytes > 0
            assert await client.read(len(data)) == data
            assert [await client.frame(), await client.frame()] == [b"E1", b"E2"]

    run_on(loop_factory, scenario())


@pytest.mark.parametrize("sendfile", [True, False])
def test_a_file_shorter_than_promised_aborts_and_never_pads(
    loop_factory: LoopFactory, tmp_path: Path, sendfile: bool
) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client, other = await server.connect(), await server.connect()
            data = pattern(300_000)
            file = file_of(tmp_path / "f", data).file if sendfile else WithoutDescriptor(data)
            await exchange(server, [b"head", FileRange(file, 0, 400_000), b"tail"], client)
            received = await client.closed()
            assert (b"head" + data).startswith(received)
            assert await other.ask(b"E-other") == b"E-other"

    run_on(loop_factory, scenario())


def test_a_file_that_cannot_be_read_aborts(loop_factory: LoopFactory, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            buffer = file_of(tmp_path / "f", pattern(100_000))
            buffer.file.close()
            buffer.file.fd = os.open(tmp_path, os.O_RDONLY)  # a folder: reading it fails
            await exchange(server, [buffer], client)
            assert await client.closed() == b""

    run_on(loop_factory, scenario())


def test_a_deleted_file_is_sent_to_its_end_and_then_let_go(loop_factory: LoopFactory, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            before = descriptors(server, tmp_path)
            data = pattern(MEGABYTE)
            await exchange(server, [file_of(tmp_path / "f", data)], client)
            await server.dispatcher.received(1)
            server.dispatcher.responses.clear()
            (tmp_path / "f").unlink()
            assert await client.read(MEGABYTE) == data
            await client.ask(b"E")
            # One more may be open: the duplicate that the pump keeps for the next time.
            assert len(descriptors(server, tmp_path) - before) <= 1

    run_on(loop_factory, scenario())


def test_the_duplicate_is_closed_so_that_the_client_sees_the_end(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            before = descriptors(server)
            client = await server.connect(receive_buffer=SMALL)
            connection = server.all[-1]
            await client.send(framed(b"L%d" % MEGABYTE))
            await server.dispatcher.received(1)
            assert connection.outbound._duplicate >= 0
            assert len(await client.frame()) == MEGABYTE
            connection.close()
            assert await client.closed() == b""
            await server.dispatcher.until(lambda: connection in server.lost)
            client.close()
            await asyncio.sleep(0)
            assert not descriptors(server) - before

    run_on(loop_factory, scenario())


def test_a_client_that_goes_in_the_middle_leaves_nothing(loop_factory: LoopFactory, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            before = descriptors(server, tmp_path)
            client = await server.connect(receive_buffer=SMALL)
            connection = server.all[-1]
            await exchange(server, [b"head", file_of(tmp_path / "f", pattern(MEGABYTE))], client)
            await server.dispatcher.received(1)
            server.dispatcher.responses.clear()
            client.close()
            await server.dispatcher.until(lambda: connection in server.lost)
            await asyncio.sleep(0)
            assert connection.outbound.pending_bytes == 0
            assert not descriptors(server, tmp_path) - before

    run_on(loop_factory, scenario())


def test_cold_data_is_read_ahead_in_a_thread_and_order_is_kept(
    loop_factory: LoopFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outbound, "_is_warm", staticmethod(lambda buffer: False))

    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            data = pattern(MEGABYTE + 5)
            server.dispatcher.responses[b"X"] = [
                b"1",
                file_of(tmp_path / "a", data),
                b"2",
                file_of(tmp_path / "b", data),
            ]
            await client.send(framed(b"X") + framed(b"E-behind"))
            expected = b"1" + data + b"2" + data
            assert await client.read(len(expected)) == expected
            assert await client.frame() == b"E-behind"

    run_on(loop_factory, scenario())


def test_a_client_that_goes_while_cold_data_is_read_ahead_leaves_nothing(
    loop_factory: LoopFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outbound, "_is_warm", staticmethod(lambda buffer: False))

    async def scenario() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        async with Loopback() as server:
            client = await server.connect()
            connection = server.all[-1]
            await exchange(server, [file_of(tmp_path / "f", pattern(MEGABYTE))], client)
            await server.dispatcher.received(1)
            connection.transport.abort()
            await server.dispatcher.until(lambda: connection in server.lost)
            await server.executor.run(lambda: None)
            assert not failures

    run_on(loop_factory, scenario())


def test_without_sendfile_ranges_are_read_and_written(
    loop_factory: LoopFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, whose sendfile is another one."""
    monkeypatch.setattr(outbound, "_HAS_SENDFILE", False)
    monkeypatch.setattr(outbound, "_NOWAIT", 0)

    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            data = pattern(MEGABYTE + 5)
            await exchange(server, [b"head", file_of(tmp_path / "f", data)], client)
            assert await client.read(len(data) + 4) == b"head" + data

    run_on(loop_factory, scenario())


def test_taking_from_a_backlog_is_progress(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=SMALL) as server:
            client = await server.connect(receive_buffer=SMALL)
            connection = server.all[-1]
            await client.send(framed(b"L%d" % MEGABYTE))
            await server.dispatcher.received(1)
            connection.outbound.progressed = False
            await client.frame()
            assert connection.outbound.progressed

    run_on(loop_factory, scenario())
