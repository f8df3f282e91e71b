"""The image follows the store, or the broker hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.store import OutcomeUncertain, Put
from flintmq.metadata.topics import NewTopic
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    with closing(SimulatedLoop(SimulatedClock())) as made:
        yield made


@pytest.fixture
def broker(loop: SimulatedLoop) -> SingleBroker:
    return SingleBroker(loop, {}, SimulatedDisk(seed=SEED))


def test_a_watch_that_breaks_is_told_and_leaves_nobody_waiting(
    loop: SimulatedLoop, broker: SingleBroker, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = broker.services.metadata
    told: list[BaseException] = []
    metadata._on_fatal = told.append

    def break_down(delta: ImageDelta) -> None:
        raise LookupError("a bug")

    metadata.subscribe(break_down)
    change: dict[str, Put | None] = {keys.topic_config("t"): Put(keys.encode({}))}

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(OutcomeUncertain):
                await metadata.txn({}, change)
        await metadata.close()

    loop.run_until_complete(scenario())
    assert [str(error) for error in told] == ["a bug"]
    assert "no longer followed" in caplog.text


def test_a_closed_watch_is_no_failure(loop: SimulatedLoop, broker: SingleBroker) -> None:
    told: list[BaseException] = []
    broker.services.metadata._on_fatal = told.append
    broker.close()
    loop.run_until_idle()
    assert told == []


def test_partitions_that_a_crash_left_without_a_topic_are_forgotten_at_the_start(
    loop: SimulatedLoop, broker: SingleBroker
) -> None:
    topic_id = bytes(15) + b"\x07"
    partition = keys.PartitionValue(leader=3, epoch=0, replicas=[3], isr=[3])

    async def write() -> None:
        for index in range(300):
            await broker.services.metadata.txn(
                {}, {keys.partition(topic_id, index): Put(keys.encode(partition))}
            )

    loop.run_until_complete(write())
    broker.create("kept", 2)
    assert len(broker.services.metadata.image.unclaimed()) == 300
    broker.close()
    again = SingleBroker(loop, {}, broker.disk)
    assert again.services.metadata.image.unclaimed() == []
    assert len(again.services.metadata.image.topics["kept"].partitions) == 2
    again.close()


def test_names_that_collide_cannot_be_created_side_by_side(loop: SimulatedLoop, broker: SingleBroker) -> None:
    topics = broker.services.topics

    async def create_both() -> list[object]:
        creations = (topics.create(NewTopic(name)) for name in ("a.b", "a_b", "a.b"))
        return list(await asyncio.gather(*creations, return_exceptions=True))

    made, collided, repeated = loop.run_until_complete(create_both())
    assert not isinstance(made, BaseException)
    assert isinstance(collided, RequestError)
    assert collided.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert isinstance(repeated, RequestError)
    assert repeated.code is ErrorCode.TOPIC_ALREADY_EXISTS
    broker.close()
