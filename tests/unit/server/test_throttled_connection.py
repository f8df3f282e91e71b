"""A connection that is throttled: it is answered and not read from, keeps no memory, and delays nobody."""

from __future__ import annotations

import asyncio

from flintmq.metrics import QuotaCounters
from flintmq.security.quotas.client_quotas import ClientLimits
from flintmq.security.quotas.rate import SampledRate
from flintmq.server.connection import SLOW_READ_BYTES, TURNED_AWAY_MAX
from flintmq.server.inbound import SHARED_BYTES
from support.broker.loopback import Loopback, LoopFactory, framed, run_on


def test_it_is_answered_at_once_and_read_from_later(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            assert await client.ask(b"T-first") == b"T-first"
            (connection,) = server.all
            assert connection.is_paused
            await client.send(framed(b"E-second"))
            await server.settle()
            assert server.dispatcher.frames == [b"T-first"]
            connection.unthrottle()
            assert await client.frame() == b"E-second"
            assert not connection.is_paused
            assert not server.shared.throttled

    run_on(loop_factory, scenario())


def test_it_goes_on_when_its_time_is_over(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            server.dispatcher.throttle_s = 0.05
            client = await server.connect()
            began = server.loop.time()
            await client.ask(b"T-first")
            assert await client.ask(b"E-second") == b"E-second"
            # The clock of uvloop has whole milliseconds.
            assert server.loop.time() - began > 0.048

    run_on(loop_factory, scenario())


def test_the_longest_time_holds(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"T-long"))
            await client.frame()
            server.all[0].throttle(0.001)
            server.all[0].throttle(0.0)
            await asyncio.sleep(0.01)
            assert server.all[0].is_paused

    run_on(loop_factory, scenario())


def test_others_are_not_delayed(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            throttled = [await server.connect() for _ in range(20)]
            for client in throttled:
                await client.ask(b"T")
                await client.send(framed(b"E-later"))
            other = await server.connect()
            assert await other.ask(b"E-now") == b"E-now"
            assert len(server.shared.throttled) == 20

    run_on(loop_factory, scenario())


def test_what_arrived_with_it_is_handled(loop_factory: LoopFactory) -> None:
    """It would be kept in memory for as long as the client is throttled."""

    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"T") + framed(b"E-with it"))
            assert await client.frame() == b"T"
            assert await client.frame() == b"E-with it"
            await client.send(framed(b"E-later"))
            await server.settle()
            assert server.dispatcher.frames == [b"T", b"E-with it"]

    run_on(loop_factory, scenario())


def test_an_unfinished_request_is_received_to_its_end_and_no_memory_is_kept(
    loop_factory: LoopFactory,
) -> None:
    """Others wait for the memory that unfinished requests take."""
    large = b"N" + bytes(4 * SHARED_BYTES)

    async def scenario() -> None:
        async with Loopback(budget=8 * SHARED_BYTES) as server:
            client = await server.connect()
            data = framed(b"T") + framed(large)
            await client.send(data[: len(data) // 2])
            assert await client.frame() == b"T"
            await client.send(data[len(data) // 2 :] + framed(b"E-later"))
            await server.dispatcher.received(2)
            await server.settle()
            (connection,) = server.all
            assert [frame[:1] for frame in server.dispatcher.frames] == [b"T", b"N"]
            assert connection.is_paused
            assert server.shared.budget.used == 0
            connection.unthrottle()
            assert await client.frame() == b"E-later"

    run_on(loop_factory, scenario())


def test_a_request_in_progress_throttles_between_requests(loop_factory: LoopFactory) -> None:
    """The response of an earlier request comes while the next one is half received."""
    large = b"N" + bytes(4 * SHARED_BYTES)

    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.send(framed(b"W-waits") + framed(large)[:SHARED_BYTES])
            await server.dispatcher.received(1)
            await server.settle()
            (connection,) = server.all
            connection.throttle(3600)
            server.dispatcher.answer(b"W-waits")
            assert await client.frame() == b"W-waits"
            assert not connection.is_paused
            await client.send(framed(large)[SHARED_BYTES:] + framed(b"E-later"))
            await server.dispatcher.received(2)
            await server.settle()
            assert connection.is_paused
            assert len(server.dispatcher.frames) == 2

    run_on(loop_factory, scenario())


def test_it_can_be_closed(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            await client.ask(b"T")
            server.all[0].close()
            await client.closed()
            await server.dispatcher.until(lambda: bool(server.lost))
            assert not server.shared.throttled

    run_on(loop_factory, scenario())


def test_a_client_that_connects_too_often_is_closed_after_a_while(loop_factory: LoopFactory) -> None:
    """KIP-612: not at once, or it would only try again. It is never read from."""

    async def scenario() -> None:
        async with Loopback() as server:
            server.shared.turned_away_s = lambda connection: 0.05
            began = server.loop.time()
            client = await server.connect(accepted=False)
            await client.send(framed(b"E"))
            assert await client.closed() == b""
            # The clock of uvloop has whole milliseconds.
            assert server.loop.time() - began > 0.048
            assert server.dispatcher.frames == []
            assert not server.shared.turned_away
            assert not server.shared.connections

    run_on(loop_factory, scenario())


def test_clients_that_wait_to_be_closed_have_a_bound(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            (connection,) = server.all
            for at in range(TURNED_AWAY_MAX):
                server.shared.turned_away[at] = None  # type: ignore[index]
            server.shared.turned_away_s = lambda connection: 3600.0
            turned_away = await server.connect(accepted=False)
            assert await turned_away.closed() == b""
            assert await client.ask(b"E") == b"E"
            assert not connection.is_paused

    run_on(loop_factory, scenario())


def test_little_is_read_at_a_time_from_a_client_that_may_write_little(loop_factory: LoopFactory) -> None:
    """What was read is handled, so that a second's worth at once would not be the client's rate."""
    frame = framed(b"T" + bytes(999))

    async def scenario() -> None:
        async with Loopback() as server:
            client = await server.connect()
            rate = SampledRate(1000.0, 11, 1.0, 0.0)
            server.all[0].session.limits = ClientLimits(QuotaCounters(), rate, None, None, None)
            await client.send(frame * 100)
            await server.dispatcher.received(1)
            await server.settle()
            assert len(server.dispatcher.frames) <= SLOW_READ_BYTES // len(frame) + 1
            assert server.all[0].is_paused

    run_on(loop_factory, scenario())
