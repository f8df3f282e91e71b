"""Compaction and repair take turns on a log, and not on different ones (Z7, S5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.partitions.maintenance.segment_rewrite import RewriteTurns
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        started = SingleBroker(loop, {}, SimulatedDisk(seed=SEED, journaling=False))
        yield started
        started.close()


def test_one_rewriter_of_a_log_waits_for_another(broker: SingleBroker) -> None:
    for topic in ("a", "b"):
        broker.create(topic)
    turns, order = RewriteTurns(), []

    async def rewrite(topic: str, name: str) -> None:
        async with turns.of(broker.partition(topic)):
            order.append(f"{name} begins")
            if name == "cancelled":
                await asyncio.Event().wait()
            await _turns_of_the_loop()
            order.append(f"{name} ends")

    async def all_of_them() -> None:
        cancelled = asyncio.create_task(rewrite("a", "cancelled"))
        waiting = asyncio.create_task(rewrite("a", "waiting"))
        await _turns_of_the_loop()
        await rewrite("b", "other")
        assert order == ["cancelled begins", "other begins", "other ends"]
        cancelled.cancel()
        await waiting

    broker.loop.run_until_complete(all_of_them())
    assert order[3:] == ["waiting begins", "waiting ends"]
    # Nothing is kept for logs that nobody rewrites.
    assert not vars(turns)["_locks"]


async def _turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
