"""A process of a world: stepped from outside, with a clock of its own, and abandoned where it is when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq.effects import Clock, Executor
from flintmq.testing.simulation.process import MachineClock, SimulatedProcess, TimedExecutor
from flintmq.testing.simulation.timeline import Timeline
from flintmq.testing.simulation.world import World, WorldStuck


@contextmanager
def running(seed: int = 1) -> Iterator[tuple[World, SimulatedProcess]]:
    """A world with one more process, which has a machine of its own."""
    with World(seed, brokers=0) as world:
        process = SimulatedProcess("other", world.timeline, MachineClock(world.timeline))
        world.add(process, None)
        yield world, process


def test_a_clock_runs_at_its_rate_and_jumps_in_wall_time_only() -> None:
    timeline = Timeline()
    machine = MachineClock(timeline, start_ms=1_000_000)
    clock: Clock = machine
    timeline.now_s = 10.0
    assert (clock.monotonic(), clock.now_ms()) == (10.0, 1_010_000)
    machine.set_rate(0.5)
    timeline.now_s = 20.0
    assert (clock.monotonic(), clock.now_ms()) == (15.0, 1_015_000)
    assert machine.world_time(16.0) == 22.0
    machine.jump(-3_600_000)
    assert (clock.monotonic(), clock.now_ms()) == (15.0, 1_015_000 - 3_600_000)
    machine.reboot()
    assert (clock.monotonic(), clock.now_ms()) == (0.0, 1_015_000 - 3_600_000)


def test_timers_fire_by_the_clock_of_their_machine() -> None:
    with running() as (world, process):
        process.clock.set_rate(0.5)
        slow, fast = process.spawn(asyncio.sleep(10.0)), world.clients.spawn(asyncio.sleep(10.0))
        world.run_until(fast)
        assert world.timeline.now_s == pytest.approx(10.0)
        assert not slow.done()
        world.run_until(slow)
        assert world.timeline.now_s == pytest.approx(20.0)


def test_a_timer_follows_a_rate_that_changes_while_it_runs() -> None:
    with running() as (world, process):
        task = process.spawn(asyncio.sleep(10.0))
        world.run_for(5.0)
        process.clock.set_rate(5.0)
        process.retime()
        world.run_until(task)
        assert world.timeline.now_s == pytest.approx(6.0)


def test_an_abandoned_process_runs_no_finally_block() -> None:
    with running() as (world, process):
        did: list[str] = []

        async def work() -> None:
            did.append("begun")
            try:
                await asyncio.sleep(1.0)
            finally:
                did.append("ended")

        process.spawn(work())
        world.run_for(0.5)
        process.abandon()
        world.remove(process, silently=False)
        process.post(did.append, "posted")
        world.run_for(5.0)
        assert did == ["begun"]


def test_a_paused_process_stands_still_and_catches_up() -> None:
    with running() as (world, process):
        at: list[float] = []

        async def tick() -> None:
            while True:
                await asyncio.sleep(1.0)
                at.append(world.timeline.now_s)

        process.spawn(tick())
        world.run_for(1.5)
        process.is_paused = True
        world.run_for(30.0)
        assert at == pytest.approx([1.0])
        process.is_paused = False
        world.run_for(1.1)
        assert at == pytest.approx([1.0, 31.5, 32.5])


def test_work_of_threads_takes_time_and_dies_with_its_process() -> None:
    with running() as (world, process):
        timed = TimedExecutor(process, "seed", work_s_max=0.5)
        executor: Executor = timed
        ran: list[float] = []

        async def work() -> float:
            await executor.run(lambda: ran.append(world.timeline.now_s))
            with pytest.raises(OSError, match="no"):
                await executor.run(_fail)
            return world.timeline.now_s

        task = process.spawn(work())
        world.run_until(task)
        assert 0 < ran[0] < task.result() < 2.0
        executor.submit(lambda: ran.append(-1.0), lambda result, error: None)
        process.abandon()
        world.run_for(5.0)
        assert len(ran) == 1


def test_time_on_a_slow_disk_is_that_of_the_thread_that_uses_it() -> None:
    with running() as (world, process):
        executor = TimedExecutor(process, "seed", work_s_max=0.0)

        def use_disk() -> None:
            executor.disk_time.spent_s += 3.0

        use_disk()
        task = process.spawn(_run(executor, use_disk))
        world.run_until(task)
        assert world.timeline.now_s == pytest.approx(3.0)
        assert executor.disk_time.leave_loop() == 3.0, "what the loop spent is left for the loop"


def test_an_error_that_nobody_handles_ends_the_run() -> None:
    with running() as (world, process):
        process.loop.call_later(1.0, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            world.run_for(2.0)


def test_a_process_that_never_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.testing.simulation.world._TURNS_PER_INSTANT_MAX", 100)

    with running() as (world, process):

        def spin() -> None:
            process.loop.call_soon(spin)

        process.post(spin)
        with pytest.raises(WorldStuck, match="other never waits"):
            world.run_for(1.0)


def test_a_wait_that_nothing_can_end_is_found() -> None:
    with running() as (world, process):
        with pytest.raises(WorldStuck, match="seed 1: nothing can happen"):
            world.run_until(world.clients.loop.create_future())
        process.spawn(asyncio.sleep(100.0))
        with pytest.raises(WorldStuck, match="seed 1: not done after 5"):
            world.run_until(world.clients.loop.create_future(), within_s=5)


def _fail() -> None:
    raise OSError("no")


async def _run(executor: TimedExecutor, work: object) -> None:
    await executor.run(work)  # type: ignore[arg-type]
