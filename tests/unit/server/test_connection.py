"""Frames in, dispatched in order; answers out, in the same order (S10, F2)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from flintmq.server.connection import BACKLOG_BYTES_MAX
from flintmq.server.inbound import SHARED_BYTES
from support.broker.loopback import Client, Loopback, LoopFactory, framed, run_on

HUGE = 5 * 1024 * 1024


def body(size: int, kind: bytes = b"E") -> bytes:
    return kind + bytes(i % 251 for i in range(size - 1))


# ---- frames


def test_frames_arrive_whole_wherever_they_are_split(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            data = framed(b"E-first") + framed(b"E-second, a longer one")
            for split in range(1, len(data)):
                await client.send(data[:split])
                await server.settle()
                await client.send(data[split:])
                assert await client.frame() == b"E-first"
                assert await client.frame() == b"E-second, a longer one"

    run_on(loop_factory, scenario())


def test_a_frame_arrives_whole_byte_by_byte(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            for byte in framed(b"E-byte by byte"):
                await client.send(bytes((byte,)))
                await server.settle()
            assert await client.frame() == b"E-byte by byte"

    run_on(loop_factory, scenario())


def test_many_frames_in_one_read_are_dispatched_in_order(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            sent = [b"E%d" % i for i in range(2000)]
            await client.send(b"".join(map(framed, sent)))
            assert [await client.frame() for _ in sent] == sent

    run_on(loop_factory, scenario())


@pytest.mark.parametrize("size", [SHARED_BYTES - 4, SHARED_BYTES - 3, SHARED_BYTES, HUGE])
def test_frames_larger_than_the_shared_buffer_arrive_whole(loop_factory: LoopFactory, size: int) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            sent = body(size, b"N")
            await client.send(framed(sent) + framed(b"E-after"))
            assert await client.frame() == b"E-after"
            assert server.dispatcher.frames == [sent, b"E-after"]
            await client.send(framed(b"N-small") + framed(sent))
            await server.dispatcher.received(4)
            assert server.dispatcher.frames[2:] == [b"N-small", sent]

    run_on(loop_factory, scenario())


def test_a_large_buffer_is_kept_for_the_next_frame_until_others_need_the_room(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        async with Loopback(budget=2 * HUGE) as server:
            client, other = await server.connect(), await server.connect()
            connection = server.all[-2]
            first, second = body(HUGE, b"N"), body(HUGE - 1, b"N")
            for frame in (first, second):
                await client.send(framed(frame))
            await server.dispatcher.received(2)
            assert server.dispatcher.frames == [first, second]
            kept = connection._own.data
            assert len(kept) == HUGE + 4
            assert server.shared.budget.used == len(kept)
            await other.send(framed(body(2 * HUGE - 4, b"N")))
            await server.dispatcher.received(3)
            assert len(connection._own.data) == 0
            await client.send(framed(first))
            await server.dispatcher.received(4)
            assert server.dispatcher.frames[3] == first

    run_on(loop_factory, scenario())


def test_memory_is_given_back_when_nothing_is_under_way(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            connection = server.all[-1]
            await client.send(framed(body(HUGE, b"N")))
            await server.dispatcher.received(1)
            await client.send(framed(b"E-unfinished")[:-1])
            await server.settle()
            connection.release_memory()
            assert len(connection._own.data) > 0, "a frame is under way"
            await client.send(framed(b"E-unfinished")[-1:])
            assert await client.frame() == b"E-unfinished"
            connection.release_memory()
            assert (len(connection._own.data), server.shared.budget.used) == (0, 0)

    run_on(loop_factory, scenario())


@pytest.mark.parametrize(
    "junk",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 1001),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_bytes_that_make_no_sense_close_that_connection_only(
    loop_factory: LoopFactory, junk: bytes, split: bool
) -> None:
    async def scenario() -> None:
        async with Loopback(frame_size_max=1000) as server:
            client, other = await server.connect(), await server.connect()
            await client.send(framed(b"E-before"))
            assert await client.frame() == b"E-before"
            if split:
                await client.send(junk[:2])
                await server.settle()
            await client.send(junk[2:] if split else junk)
            assert await client.closed() == b""
            assert await other.ask(b"E-other") == b"E-other"
            assert server.dispatcher.frames == [b"E-before", b"E-other"]

    run_on(loop_factory, scenario())


# ---- order


def test_answers_come_in_the_order_of_the_requests(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            for data in (b"P1", b"E2", b"W3", b"N4", b"E5", b"P6", b"E7"):
                await client.send(framed(data))
            await server.dispatcher.received(7)
            server.dispatcher.answer(b"W3")
            server.dispatcher.answer(b"P6")
            await server.settle()
            assert server.all[-1].in_flight == 7
            server.dispatcher.answer(b"P1")
            assert [await client.frame() for _ in range(6)] == [b"P1", b"E2", b"W3", b"E5", b"P6", b"E7"]
            assert server.all[-1].in_flight == 0

    run_on(loop_factory, scenario())


def test_no_more_than_so_many_requests_are_in_flight(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(in_flight_max=3) as server:
            client = await server.connect()
            sent = [b"W%d" % i for i in range(10)]
            await client.send(b"".join(map(framed, sent)))
            await server.dispatcher.received(3)
            await server.settle()
            assert server.dispatcher.frames == sent[:3]
            for at, data in enumerate(sent):
                server.dispatcher.answer(data)
                assert await client.frame() == data
                assert len(server.dispatcher.frames) == min(at + 4, len(sent))
            await client.send(framed(b"E-after"))
            assert await client.frame() == b"E-after"

    run_on(loop_factory, scenario())


def test_nothing_is_dispatched_behind_a_barrier(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"B1") + framed(b"E2") + framed(b"B3") + framed(b"E4"))
            await server.dispatcher.received(1)
            await client.send(framed(b"E5"))
            await server.settle()
            assert server.dispatcher.frames == [b"B1"]
            server.dispatcher.answer(b"B1")
            assert server.dispatcher.frames == [b"B1", b"E2", b"B3"]
            server.dispatcher.answer(b"B3")
            assert [await client.frame() for _ in range(5)] == [b"B1", b"E2", b"B3", b"E4", b"E5"]

    run_on(loop_factory, scenario())


def test_a_barrier_that_is_done_lets_others_pass_even_if_its_turn_has_not_come(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"P1") + framed(b"B2") + framed(b"W3") + framed(b"E4"))
            await server.dispatcher.received(2)
            server.dispatcher.answer(b"B2")
            await server.dispatcher.received(4)
            server.dispatcher.answer(b"W3")
            server.dispatcher.answer(b"P1")
            assert [await client.frame() for _ in range(4)] == [b"P1", b"B2", b"W3", b"E4"]

    run_on(loop_factory, scenario())


def test_a_large_frame_that_completes_behind_a_barrier_waits_and_is_not_lost(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        async with Loopback(budget=1) as server:
            client = await server.connect()
            connection = server.all[-1]
            large = body(HUGE, b"N")
            data = framed(b"P1") + framed(large) + framed(b"E2")
            await client.send(data[:-100_000])
            await server.dispatcher.received(1)
            await server.settle()
            # The backlog fills while the large frame is under way: what completes it finds dispatch held back.
            connection.outbound.pending_bytes += BACKLOG_BYTES_MAX + 1
            sending = asyncio.ensure_future(client.send(data[-100_000:]))
            await server.settle()
            await sending
            assert server.dispatcher.frames == [b"P1"]
            connection.release_memory()
            connection.outbound.pending_bytes -= BACKLOG_BYTES_MAX + 1
            server.dispatcher.answer(b"P1")
            assert server.dispatcher.frames[:2] == [b"P1", large]
            assert await client.frame() == b"P1"
            assert await client.frame() == b"E2"
            assert not server.shared.budget.is_charged(connection)

    run_on(loop_factory, scenario())


def test_frames_held_back_are_not_overwritten_by_other_connections(loop_factory: LoopFactory) -> None:
    """They arrived in the receive buffer that all connections share."""

    async def scenario() -> None:
        async with Loopback() as server:
            client, other = await server.connect(), await server.connect()
            held = [b"E%d-" % i + b"h" * 500 for i in range(50)]
            await client.send(framed(b"B") + b"".join(map(framed, held)) + framed(b"E-unfinished")[:7])
            await server.dispatcher.received(1)
            await server.settle()
            await other.send(framed(b"N" + b"o" * 100_000))
            await server.dispatcher.received(2)
            server.dispatcher.answer(b"B")
            assert [await client.frame() for _ in range(51)] == [b"B", *held]
            await client.send(framed(b"E-unfinished")[7:])
            assert await client.frame() == b"E-unfinished"

    run_on(loop_factory, scenario())


# ---- back-pressure


def test_a_client_that_does_not_read_is_not_read_from_and_hurts_nobody(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(send_buffer=64 * 1024) as server:
            stubborn = await server.connect(receive_buffer=16 * 1024)
            connection = server.all[-1]
            other = await server.connect()
            size = 100_000
            count = 200
            sending = asyncio.ensure_future(stubborn.send(framed(b"L%d" % size) * count))
            await server.dispatcher.received(BACKLOG_BYTES_MAX // size)
            await server.settle()
            assert connection.outbound.pending_bytes <= BACKLOG_BYTES_MAX + size + 4
            assert len(server.dispatcher.frames) < count // 2
            assert await other.ask(b"E-other") == b"E-other"
            for _ in range(count):
                assert len(await stubborn.frame()) == size
            await sending
            assert connection.outbound.pending_bytes == 0
            assert await stubborn.ask(b"E-again") == b"E-again"

    run_on(loop_factory, scenario())


def test_requests_without_an_answer_are_not_answered(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"N1") + framed(b"N2"))
            assert await client.ask(b"E3") == b"E3"
            assert server.dispatcher.frames == [b"N1", b"N2", b"E3"]

    run_on(loop_factory, scenario())


def test_over_the_memory_budget_one_frame_finishes_and_the_others_follow(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(budget=2 * SHARED_BYTES) as server:
            clients = [await server.connect() for _ in range(4)]
            frames = [body(HUGE - i, b"N") for i in range(4)]
            sending = [
                asyncio.ensure_future(client.send(framed(frame)[:-1]))
                for client, frame in zip(clients, frames, strict=True)
            ]
            done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            await server.settle()
            budget = server.shared.budget
            assert sum(budget.is_waiting(connection) for connection in server.all) >= 2
            small = await server.connect()
            assert await small.ask(b"E" + bytes(SHARED_BYTES - 5)) == b"E" + bytes(SHARED_BYTES - 5)
            while sending:
                done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                for at in [i for i, task in enumerate(sending) if task in done]:
                    await clients[at].send(framed(frames[at])[-1:])
                clients = [c for c, task in zip(clients, sending, strict=True) if task not in done]
                frames = [f for f, task in zip(frames, sending, strict=True) if task not in done]
                sending = [task for task in sending if task not in done]
            await server.dispatcher.received(5)
            assert budget.used == 0

    run_on(loop_factory, scenario())


def test_the_beginning_of_a_large_frame_is_charged_before_its_buffer_grows(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(budget=1) as server:
            await server.connect()
            first = server.all[-1]
            await server.connect()
            second = server.all[-1]
            data = framed(body(HUGE))[: SHARED_BYTES - 1000]
            for connection in (first, second):
                # As the loop would hand it over, all in one read.
                connection.get_buffer(-1)[: len(data)] = data
                connection.buffer_updated(len(data))
            budget = server.shared.budget
            assert (budget.is_charged(first), budget.is_waiting(second)) == (True, True)
            assert not second.transport.is_reading()
            first.transport.abort()
            await server.dispatcher.until(lambda: first in server.lost)
            assert budget.is_charged(second)
            assert second.transport.is_reading()

    run_on(loop_factory, scenario())


def test_a_claimed_length_is_not_charged(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(budget=SHARED_BYTES) as server:
            for _ in range(60):
                client = await server.connect()
                await client.send(struct.pack(">i", 60 * 1024 * 1024) + bytes(1000))
            await server.settle()
            assert server.shared.budget.used == 0
            assert sum(len(connection._own.data) for connection in server.all) <= 60 * 64 * 1024

    run_on(loop_factory, scenario())


# ---- the end


def test_long_polls_are_cancelled_when_the_client_goes(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"P1") + framed(b"W2") + framed(b"P3"))
            await server.dispatcher.received(3)
            client.close()
            await server.dispatcher.until(lambda: bool(server.lost))
            assert server.dispatcher.cancelled == [b"P1", b"P3"]
            # What is answered too late goes nowhere, and hurts nobody.
            server.dispatcher.answer(b"W2")
            assert server.lost[0].in_flight == 0

    run_on(loop_factory, scenario())


def test_everything_sent_before_the_client_went_is_handled(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"B1") + framed(b"N2") + framed(b"N3"))
            await server.dispatcher.received(1)
            client.sock.shutdown(socket.SHUT_WR)
            await server.settle()
            assert not server.lost
            server.dispatcher.answer(b"B1")
            await server.dispatcher.received(3)
            assert await client.frame() == b"B1"

    run_on(loop_factory, scenario())


def test_a_client_that_is_gone_before_it_is_accepted_leaves_nothing(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        async with Loopback() as server:
            for _ in range(5):
                sock = socket.create_connection(server.address)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            await server.settle()
            assert not failures
            assert not server.shared.connections

    run_on(loop_factory, scenario())


def test_a_refused_connection_dispatches_nothing_more(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback(frame_size_max=100) as server:
            client = await server.connect()
            await client.send(framed(b"N1") + struct.pack(">i", 101) + framed(b"N2"))
            await client.closed()
            assert server.dispatcher.frames == [b"N1"]

    run_on(loop_factory, scenario())


def test_finishing_answers_what_is_dispatched_and_dispatches_nothing_more(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            connection = server.all[-1]
            await client.send(framed(b"P1") + framed(b"W2") + framed(b"P3"))
            await server.dispatcher.received(3)
            server.shared.draining = True
            connection.finish()
            await client.send(framed(b"E4"))
            await server.settle()
            assert await client.frame() == b"P1"
            assert connection.is_writing
            server.dispatcher.answer(b"W2")
            assert [await client.frame() for _ in range(2)] == [b"W2", b"P3"]
            assert not connection.is_writing
            assert server.dispatcher.frames == [b"P1", b"W2", b"P3"]

    run_on(loop_factory, scenario())


@pytest.mark.parametrize(
    ("prepare", "stalled"),
    [
        (lambda server, connection: None, True),
        (lambda server, connection: connection._pause(), False),
    ],
)
def test_a_frame_stalls_only_if_it_is_the_client_that_stopped(
    loop_factory: LoopFactory, prepare: Callable[..., object], stalled: bool
) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            connection = server.all[-1]
            assert not connection.is_stalled
            await client.send(framed(b"E-unfinished")[:-1])
            await server.settle()
            prepare(server, connection)
            assert connection.is_stalled is stalled

    run_on(loop_factory, scenario())


def test_to_be_answered_is_to_be_active(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client: Client = await server.connect()
            connection = server.all[-1]
            await client.send(framed(b"P1"))
            await server.dispatcher.received(1)
            connection.active_at = -1000.0
            server.dispatcher.answer(b"P1")
            assert connection.active_at > 0

    run_on(loop_factory, scenario())
