"""Brokers of a cluster create, grow and delete topics at the same time, and nothing is torn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.store import OutcomeUncertain, Put
from flintmq.metadata.topic_transactions import TopicTransactions, finish_deletion
from support.metadata.shared_store import Fault, SharedStore, StoreSession, joined

UNCERTAIN = [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.LATE]
ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
MANY = [[1, 2]] * 20
"""More partitions than fit into one transaction."""


class Pair:
    """Two registered brokers."""

    def __init__(self) -> None:
        self.shared = SharedStore()
        self.stores: list[StoreSession] = []
        self.metadata: list[ClusterMetadata] = []
        self.topics: list[TopicTransactions] = []

    async def start(self) -> None:
        for node in (1, 2):
            value = keys.BrokerValue(incarnation=str(node))
            self.shared.apply({}, {keys.broker(node): Put(keys.encode(value))})
        for node in (1, 2):
            store = self.shared.session()
            metadata = await joined(store)
            self.stores.append(store)
            self.metadata.append(metadata)
            self.topics.append(TopicTransactions(metadata, node, lambda node=node: node))  # type: ignore[misc]

    async def close(self) -> None:
        for metadata in self.metadata:
            await metadata.close()

    def stored(self, prefix: str) -> list[str]:
        return [key for key in sorted(self.shared.keyspace.items) if key.startswith(prefix)]


def run(scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        pair = Pair()
        async with asyncio.timeout(20):
            await pair.start()
            await scenario(pair)
            await pair.close()

    asyncio.run(main())


def code_of(result: object) -> ErrorCode:
    assert isinstance(result, RequestError), result
    return result.code


def test_a_new_partition_records_the_epochs_of_its_replicas() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, [[2, 1]], {"retention.ms": "1"})
        (state,) = pair.metadata[0].image.topics["t"].partitions
        assert state.value == keys.PartitionValue(
            leader=2, epoch=0, replicas=[2, 1], isr=[2, 1], isr_epochs=[2, 1]
        )
        assert pair.metadata[0].image.topic_configs == {"t": {"retention.ms": "1"}}
        assert pair.stored(keys.CREATING) == []

    run(scenario)


def test_one_name_created_by_two_brokers_is_one_topic_without_remains() -> None:
    async def scenario(pair: Pair) -> None:
        results = await asyncio.gather(
            pair.topics[0].create("t", ID, MANY, {}),
            pair.topics[1].create("t", OTHER_ID, MANY, {}),
            return_exceptions=True,
        )
        (refused,) = [one for one in results if isinstance(one, BaseException)]
        assert code_of(refused) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert len(pair.stored(keys.PARTITIONS)) == 20
        assert pair.stored(keys.CREATING) == []

    run(scenario)


def test_names_that_collide_are_decided_in_the_store() -> None:
    async def scenario(pair: Pair) -> None:
        results = await asyncio.gather(
            pair.topics[0].create("a.b", ID, [[1]], {}),
            pair.topics[1].create("a_b", OTHER_ID, [[2]], {}),
            return_exceptions=True,
        )
        (refused,) = [one for one in results if isinstance(one, BaseException)]
        assert code_of(refused) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "collides" in str(refused)
        (name,) = pair.metadata[0].image.topics
        await pair.topics[0].delete(pair.metadata[0].image.topics[name])
        assert pair.stored(keys.METRIC_NAMES) == []
        await pair.topics[1].create("a_b", bytes(15) + b"\x09", [[2]], {})

    run(scenario)


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("fault", UNCERTAIN)
def test_a_creation_with_an_uncertain_step_creates_one_topic(fault: Fault, at: int) -> None:
    async def scenario(pair: Pair) -> None:
        pair.stores[0].faults.extend([*[Fault.NONE] * at, fault])
        await pair.topics[0].create("t", ID, MANY, {})
        assert len(pair.metadata[0].image.topics["t"].partitions) == 20
        assert pair.stored(keys.CREATING) == []

    run(scenario)


def test_a_creation_is_not_applied_again_after_its_topic_was_deleted() -> None:
    async def scenario(pair: Pair) -> None:
        store = pair.stores[0]

        def delete_it(expect: object, writes: Mapping[str, Put | None]) -> None:
            """Before the second attempt, another broker deletes the topic and its brokers are done with that."""
            if keys.topic("t") in writes and keys.topic("t") in pair.shared.keyspace.items:
                gone: dict[str, Put | None] = {keys.topic("t"): None, keys.partition(ID, 0): None}
                pair.shared.apply({}, gone)

        store.before_txn = delete_it
        store.faults.extend([Fault.NONE, Fault.NONE, Fault.LOST_RESPONSE])
        with pytest.raises(RequestError):
            await pair.topics[0].create("t", ID, [[1]], {})
        assert pair.stored(keys.TOPICS) == []

    run(scenario)


def test_a_creation_whose_claim_was_removed_writes_nothing_more() -> None:
    async def scenario(pair: Pair) -> None:
        def remove_claim(expect: object, writes: Mapping[str, Put | None]) -> None:
            if keys.partition(ID, 10) in writes:
                pair.shared.apply({}, {keys.creating(ID): None})

        pair.stores[0].before_txn = remove_claim
        with pytest.raises(RequestError, match="fenced"):
            await pair.topics[0].create("t", ID, MANY, {})
        assert pair.stored(keys.PARTITIONS) == pair.stored(keys.TOPICS) == []

    run(scenario)


def test_what_an_abandoned_creation_left_is_removed_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.metadata.cluster_metadata.RETRY_DELAYS_S", (0.0,))

    async def scenario(pair: Pair) -> None:
        pair.stores[0].faults.extend([*[Fault.NONE] * 3, *[Fault.LOST_REQUEST] * 100])
        with pytest.raises(OutcomeUncertain):
            await pair.topics[0].create("t", ID, MANY, {})
        assert pair.stored(keys.CREATING)
        pair.stores[0].faults.clear()
        await pair.topics[0].create("u", OTHER_ID, [[1]], {})
        assert pair.stored(keys.CREATING) == []
        assert len(pair.stored(keys.PARTITIONS)) == 1

    run(scenario)


def test_two_brokers_that_grow_a_topic_never_overwrite_a_partition_in_use() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, [[1, 2]], {})
        used = keys.PartitionValue(leader=2, epoch=9, replicas=[2, 1], isr=[2], isr_epochs=[2])
        grown = False

        def grow_first(expect: object, writes: Mapping[str, Put | None]) -> None:
            """Another broker commits while this one has written some of its partitions."""
            nonlocal grown
            if not grown and keys.partition(ID, 14) in writes:
                grown = True
                both: dict[str, Put | None] = {
                    keys.partition(ID, index): Put(keys.encode(used)) for index in range(1, 21)
                }
                topic = keys.TopicValue(
                    id=keys.decode_topic(pair.shared.keyspace.items[keys.topic("t")].value).id, partitions=21
                )
                pair.shared.apply({}, {**both, keys.topic("t"): Put(keys.encode(topic))})

        topic = pair.metadata[0].image.topics["t"]
        pair.stores[0].before_txn = grow_first
        with pytest.raises(RequestError, match="meanwhile"):
            await pair.topics[0].grow(topic, MANY)
        assert grown
        states = pair.metadata[0].image.topics["t"].partitions
        assert [state.epoch for state in states] == [0] + [9] * 20

    run(scenario)


@pytest.mark.parametrize("fault", [Fault.NONE, *UNCERTAIN])
def test_a_growth_after_one_that_was_cut_short_is_whole(fault: Fault) -> None:
    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, [[1, 2]], {})
        leftover = keys.PartitionValue(leader=9, epoch=0, replicas=[9], isr=[9])
        pair.shared.apply({}, {keys.partition(ID, 3): Put(keys.encode(leftover))})
        pair.stores[1].faults.extend([Fault.NONE, fault])
        await pair.topics[1].grow(pair.metadata[1].image.topics["t"], MANY)
        states = pair.metadata[1].image.topics["t"].partitions
        assert len(states) == 21
        assert all(state.leader == 1 for state in states)

    run(scenario)


def test_a_deletion_ends_when_the_last_broker_with_replicas_is_done() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, MANY, {})
        await pair.topics[1].delete(pair.metadata[1].image.topics["t"])
        assert pair.stored(keys.PARTITIONS) == []
        assert pair.metadata[1].image.deleting[ID].brokers == [1, 2]
        await finish_deletion(pair.metadata[1], ID, 7)
        await asyncio.gather(*(finish_deletion(one, ID, 1) for one in pair.metadata))
        assert pair.metadata[1].image.deleting[ID].brokers == [2]
        await finish_deletion(pair.metadata[1], ID, 2)
        assert pair.stored(keys.DELETING) == []
        await finish_deletion(pair.metadata[1], ID, 2)

    run(scenario)


def test_brokers_that_finish_a_deletion_together_forget_nobody() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, [[1, 2]], {})
        await pair.topics[0].delete(pair.metadata[0].image.topics["t"])
        # Brings the image of the other broker up to date.
        await pair.metadata[1].write({keys.topic_config("u"): Put(b"{}")})
        assert ID in pair.metadata[1].image.deleting
        await asyncio.gather(
            finish_deletion(pair.metadata[0], ID, 1), finish_deletion(pair.metadata[1], ID, 2)
        )
        assert pair.stored(keys.DELETING) == []

    run(scenario)


def test_the_end_of_a_deletion_waits_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.metadata.topic_transactions._DELETION_RETRY_S", 0.0)

    async def scenario(pair: Pair) -> None:
        await pair.topics[0].create("t", ID, [[1]], {})
        await pair.topics[0].delete(pair.metadata[0].image.topics["t"])
        pair.stores[0].faults.extend([Fault.UNAVAILABLE] * 3)
        await finish_deletion(pair.metadata[0], ID, 1)
        assert pair.stored(keys.DELETING) == []

    run(scenario)


def test_a_partition_none_of_whose_brokers_is_registered_is_not_created() -> None:
    async def scenario(pair: Pair) -> None:
        with pytest.raises(RequestError, match="is registered"):
            await pair.topics[0].create("t", ID, [[1], [7]], {})
        assert pair.stored(keys.PARTITIONS) == pair.stored(keys.CREATING) == []

    run(scenario)
