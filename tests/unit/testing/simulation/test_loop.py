"""Virtual time: nothing waits, everything happens in an order that the seed alone decides (R8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.effects import Clock, Executor, Timers
from flintmq.testing.simulation import SimulatedClock, SimulatedExecutor, SimulatedLoop, SimulatedRandom


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    with closing(SimulatedLoop(SimulatedClock(start_ms=1000))) as loop:
        yield loop


def test_a_day_of_sleep_takes_no_time(loop: SimulatedLoop) -> None:
    started = time.monotonic()
    clock: Clock = loop.clock
    loop.run_until_complete(asyncio.sleep(86_400.0 * 3))
    assert clock.monotonic() == pytest.approx(86_400 * 3)
    assert clock.now_ms() == pytest.approx(1000 + 86_400_000 * 3, abs=1)
    assert time.monotonic() - started < 5


def test_timers_fire_at_their_own_moments_while_time_is_advanced(loop: SimulatedLoop) -> None:
    timers: Timers = loop
    fired: list[tuple[str, float]] = []

    def fire(name: str) -> None:
        fired.append((name, loop.time()))

    timers.call_later(2.0, fire, "second")
    timers.call_later(1.0, fire, "first")
    timers.call_later(3.0, fire, "third")
    timers.call_later(1.5, fire, "cancelled").cancel()
    timers.call_soon(fire, "soon")
    loop.run_until_idle()
    assert fired == [("soon", 0.0)]
    loop.advance(2.5)
    assert [name for name, _ in fired] == ["soon", "first", "second"]
    assert [at for _, at in fired] == pytest.approx([0.0, 1.0, 2.0])
    assert loop.time() == pytest.approx(2.5)
    loop.advance(0.5)
    assert fired[-1][0] == "third"
    assert fired[-1][1] == pytest.approx(3.0)
    loop.advance(10)
    assert loop.time() == pytest.approx(13.0)


def test_a_wait_that_nothing_can_end_is_a_deadlock_not_a_hang(loop: SimulatedLoop) -> None:
    waiting = loop.create_future()
    with pytest.raises(RuntimeError, match="deadlock"):
        loop.run_until_complete(waiting)


def test_an_error_in_a_callback_ends_the_run(loop: SimulatedLoop) -> None:
    loop.call_later(1.0, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.advance(2.0)
    loop.run_until_idle()


def test_executor_work_and_its_result_come_back_on_the_loop(loop: SimulatedLoop) -> None:
    executor: Executor = SimulatedExecutor(loop, seed=1)
    results: list[tuple[int | None, BaseException | None]] = []
    executor.submit(lambda: 42, lambda result, error: results.append((result, error)))
    error = OSError("no")

    def fail() -> int:
        raise error

    assert results == []
    loop.run_until_idle()
    assert results == [(42, None)]
    executor.submit(fail, lambda result, error: results.append((result, error)))
    loop.run_until_idle()
    assert results[-1] == (None, error)

    async def main() -> int:
        with pytest.raises(OSError, match="no"):
            await executor.run(fail)
        return await executor.run(int, "7")

    assert loop.run_until_complete(main()) == 7
    assert loop.time() == 0.0, "work takes steps, not time"


def test_the_seed_decides_the_order_of_work(loop: SimulatedLoop) -> None:
    def order(seed: int) -> tuple[int, ...]:
        executor = SimulatedExecutor(loop, seed)
        ran: list[int] = []
        for n in range(5):
            executor.submit(lambda n=n: ran.append(n), lambda *_: None)  # type: ignore[misc]
        loop.run_until_idle()
        return tuple(ran)

    orders = {seed: order(seed) for seed in range(20)}
    assert all(order(seed) == ran for seed, ran in orders.items())
    assert len(set(orders.values())) > 5


def test_random_bytes_are_those_of_the_seed() -> None:
    assert SimulatedRandom(1).bytes(16) == SimulatedRandom(1).bytes(16) != SimulatedRandom(2).bytes(16)
