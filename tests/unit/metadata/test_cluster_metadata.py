"""The image follows the store, or the broker hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.store import OutcomeUncertain, Put
from flintmq.metadata.topics import NewTopic
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker
from support.metadata.shared_store import SharedStore, joined


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


CONFIG = keys.topic_config("t")


def test_keys_of_others_do_not_make_a_transaction_wait_for_ever() -> None:
    async def scenario() -> None:
        shared = SharedStore()
        metadata = ClusterMetadata(shared.session(), is_standalone=False, root="/ours/")
        await metadata.start()
        made = await metadata.txn({CONFIG: 0}, {CONFIG: Put(b"{}")})
        shared.apply({}, {"/theirs/a": Put(b"")})
        async with asyncio.timeout(5):
            # None of these makes a revision that the watch under the root reports.
            assert not (await metadata.txn({CONFIG: 0}, {CONFIG: None})).committed
            assert (await metadata.txn({}, {})).committed
            assert (await metadata.txn({}, {keys.topic_config("absent"): None})).committed
            assert not (await metadata.txn({keys.topic_config("absent"): 5}, {})).committed
            assert (await metadata.txn({CONFIG: made.revision}, {CONFIG: None})).committed
        assert metadata.image.topic_configs == {}
        await metadata.close()

    asyncio.run(scenario())


def test_a_transaction_returns_only_once_the_image_shows_what_it_found() -> None:
    async def scenario() -> None:
        shared = SharedStore()
        store = shared.session()
        metadata = await joined(store)
        old = await metadata.txn({CONFIG: 0}, {CONFIG: Put(b"{}")})
        store.hold_watch()
        for writes in ({CONFIG: Put(b'{"a":"1"}')}, {CONFIG: None}):
            shared.apply({}, {**writes})
            refused = asyncio.create_task(metadata.txn({CONFIG: old.revision}, {CONFIG: Put(b"{}")}))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not refused.done()
            store.release_watch()
            assert not (await refused).committed
            store.hold_watch()
        assert metadata.image.topic_configs == {}
        assert metadata.revision_of(CONFIG) == 0
        await metadata.close()

    asyncio.run(scenario())


def test_an_outage_of_a_shared_store_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.metadata.cluster_metadata.RETRY_DELAYS_S", (0.0,))

    async def scenario() -> None:
        shared = SharedStore()
        store, fatal = shared.session(), list[BaseException]()
        metadata = ClusterMetadata(store, fatal.append, is_standalone=False)
        await metadata.start()
        await metadata.write({CONFIG: Put(b'{"a":"0"}')})
        seen = asyncio.Event()
        metadata.subscribe(lambda delta: seen.set())
        store.is_cut_off = True
        for n in range(1, 4):
            shared.apply({}, {CONFIG: Put(b'{"a":"%d"}' % n)})
            for _ in range(10):
                await asyncio.sleep(0)
        assert metadata.image.topic_configs["t"]["a"] == "0"
        shared.compacted_below = shared.keyspace.revision
        store.is_cut_off = False
        await asyncio.wait_for(seen.wait(), 5)
        assert metadata.image.topic_configs["t"]["a"] == "3"
        assert fatal == []
        await metadata.close()

    asyncio.run(scenario())


def test_a_store_that_was_restored_from_a_backup_stops_the_broker() -> None:
    async def scenario() -> None:
        shared = SharedStore()
        store, stopped = shared.session(), asyncio.get_running_loop().create_future()
        metadata = ClusterMetadata(store, stopped.set_result, is_standalone=False)
        await metadata.start()
        for n in range(3):
            await metadata.write({CONFIG: Put(b'{"a":"%d"}' % n)})
        store.hold_watch()
        shared.keyspace = SharedStore().keyspace
        shared.compacted_below = 1 << 60
        shared.apply({}, {CONFIG: Put(b"{}")})
        store.release_watch()
        error = await asyncio.wait_for(stopped, 5)
        assert "restored from a backup" in str(error)
        await metadata.close()

    asyncio.run(scenario())
