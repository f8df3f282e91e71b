"""An uncertain transaction is applied once or not at all, and its caller learns which."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from flintmq.metadata.producer_ids import BLOCK, ProducerIds
from flintmq.metadata.settled_transactions import applied_revision
from flintmq.metadata.store import OutcomeUncertain, Put, StoreItem, StoreUnavailable
from support.metadata.shared_store import Fault, SharedStore, joined

UNCERTAIN = [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.LATE]
A_AT_3 = StoreItem(b"a", 3)


@pytest.mark.parametrize(
    ("expect", "writes", "found", "applied"),
    [
        ({"/a": 2}, {"/a": Put(b"a")}, {"/a": A_AT_3}, 3),
        ({"/a": 0}, {"/a": Put(b"a")}, {"/a": A_AT_3}, 3),
        # It was there before, with the same value.
        ({"/a": 3}, {"/a": Put(b"a")}, {"/a": A_AT_3}, None),
        ({"/a": 2}, {"/a": Put(b"b")}, {"/a": A_AT_3}, None),
        ({"/a": 2}, {"/a": Put(b"a", lease=7)}, {"/a": A_AT_3}, None),
        ({"/a": 2}, {"/a": Put(b"a")}, {"/a": None}, None),
        # Two writers: what a transaction writes has one revision.
        ({}, {"/a": Put(b"a"), "/b": Put(b"a")}, {"/a": A_AT_3, "/b": StoreItem(b"a", 4)}, None),
        ({}, {"/a": Put(b"a"), "/b": Put(b"a")}, {"/a": A_AT_3, "/b": A_AT_3}, 3),
        ({"/a": 2}, {"/a": None}, {"/a": None}, 0),
        ({"/a": 2}, {"/a": None}, {"/a": A_AT_3}, None),
    ],
)
def test_a_transaction_is_recognized_by_what_it_wrote(
    expect: Mapping[str, int],
    writes: Mapping[str, Put | None],
    found: Mapping[str, StoreItem | None],
    applied: int | None,
) -> None:
    assert applied_revision(expect, writes, found) == applied


@pytest.mark.parametrize("first", UNCERTAIN)
@pytest.mark.parametrize("second", [Fault.NONE, *UNCERTAIN, Fault.UNAVAILABLE])
def test_an_uncertain_transaction_is_applied_exactly_once(first: Fault, second: Fault) -> None:
    async def scenario() -> None:
        shared = SharedStore()
        store = shared.session()
        metadata = await joined(store)
        old = await metadata.txn({"/config/topic/t": 0}, {"/config/topic/t": Put(b'{"a":"1"}')})
        store.faults.extend([first, second])
        outcome = await metadata.txn(
            {"/config/topic/t": old.revision}, {"/config/topic/t": Put(b'{"a":"2"}')}
        )
        assert outcome.committed
        assert shared.keyspace.revision == old.revision + 1
        assert outcome.revision == old.revision + 1
        assert metadata.image.topic_configs == {"t": {"a": "2"}}
        await metadata.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", UNCERTAIN)
def test_an_uncertain_transaction_that_another_broker_was_faster_than_has_failed(fault: Fault) -> None:
    async def scenario() -> None:
        shared = SharedStore()
        store = shared.session()
        metadata = await joined(store)

        def other(expect: object, writes: object) -> None:
            store.before_txn = lambda expect, writes: None
            shared.apply({}, {"/config/topic/t": Put(b'{"a":"other"}')})

        store.before_txn = other
        store.faults.append(fault)
        outcome = await metadata.txn({"/config/topic/t": 0}, {"/config/topic/t": Put(b'{"a":"ours"}')})
        assert not outcome.committed
        assert metadata.image.topic_configs == {"t": {"a": "other"}}
        await metadata.close()

    asyncio.run(scenario())


def test_an_outcome_that_stays_uncertain_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.metadata.cluster_metadata.RETRY_DELAYS_S", (0.0,))

    async def scenario() -> None:
        store = SharedStore().session()
        metadata = await joined(store)
        store.faults.extend([Fault.LOST_REQUEST] * 100)
        with pytest.raises(OutcomeUncertain):
            await metadata.txn({"/cluster": 0}, {"/cluster": Put(b'{"id":"c"}')})
        store.faults.clear()
        store.faults.append(Fault.UNAVAILABLE)
        with pytest.raises(StoreUnavailable):
            await metadata.txn({"/cluster": 0}, {"/cluster": Put(b'{"id":"c"}')})
        await metadata.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", UNCERTAIN)
def test_two_brokers_never_take_one_block_of_producer_ids(fault: Fault) -> None:
    async def scenario() -> None:
        shared = SharedStore()
        stores = [shared.session(), shared.session()]
        metadata = [await joined(store) for store in stores]
        ids = [ProducerIds(one, token) for one, token in zip(metadata, ("one", "two"), strict=True)]
        # The first broker's transaction is uncertain, and the second takes the same block before it is settled.
        stores[0].faults.append(fault)
        taken = await asyncio.gather(ids[0].take(), ids[1].take())
        assert taken[0] // BLOCK != taken[1] // BLOCK
        for one in metadata:
            await one.close()

    asyncio.run(scenario())


def test_a_write_that_is_applied_late_does_not_undo_a_newer_one() -> None:
    async def scenario() -> None:
        shared = SharedStore()
        store = shared.session()
        metadata = await joined(store)
        store.faults.append(Fault.LATE)
        await metadata.write({"/config/topic/t": Put(b'{"a":"1"}')})
        await metadata.write({"/config/topic/t": Put(b'{"a":"2"}')})
        assert metadata.image.topic_configs == {"t": {"a": "2"}}
        await metadata.close()

    asyncio.run(scenario())
