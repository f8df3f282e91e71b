"""Brokers create, grow and delete topics at once, on a store that fails: nothing is torn and nothing is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from flintmq.errors import MetadataStoreError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import ClusterImage
from flintmq.metadata.store import Put, TxnOutcome
from flintmq.metadata.topic_transactions import finish_deletion
from support.cluster.brokers import Cluster, ControlledBroker, run_cluster
from support.metadata.shared_store import Fault, SharedStore

NAMES = ["a.b", "a_b", "t", "u"]
FAULTS = [Fault.UNAVAILABLE, Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.LATE]


class WatchedStore(SharedStore):
    """Follows each change, as every broker does, and checks it."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()

    def apply(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        before = self.keyspace.revision
        outcome = super().apply(expect, writes)
        if self.keyspace.revision > before:
            change = self.keyspace.next_change("/", after=before)
            assert change is not None
            epochs = {
                (one.id, index): state.epoch
                for one in self.image.topics.values()
                for index, state in enumerate(one.partitions)
            }
            delta = self.image.apply(change.revision, change.items)
            for topic, index in delta.partitions_changed:
                known = epochs.get((topic.id, index))
                assert known is None or topic.partitions[index].epoch >= known, (
                    "a live partition was replaced"
                )
            assert not self.image._incomplete, "a topic is there without its partitions"
            merged = Counter(name.replace(".", "_") for name in self.image.topics)
            assert max(merged.values(), default=0) <= 1, "two topics have one name in metrics"
        return outcome


async def work(broker: ControlledBroker, random: Random, done: Counter[str]) -> None:
    """One client of one broker."""
    for _ in range(12):
        await asyncio.sleep(random.random() * 0.01)
        name = random.choice(NAMES)
        topic = broker.metadata.image.topics.get(name)
        if random.random() < 0.3:
            broker.store.faults.extend([Fault.NONE] * random.randrange(4) + [random.choice(FAULTS)])
        placed = [[random.randint(1, 3)] for _ in range(random.choice([1, 3, 20]))]
        try:
            if topic is None:
                await broker.topics.create(name, random.randbytes(16), placed, {})
                done["created"] += 1
            elif random.random() < 0.5:
                await broker.topics.grow(topic, placed)
                done["grown"] += 1
            else:
                await broker.topics.delete(topic)
                done["deleted"] += 1
        except (RequestError, MetadataStoreError):
            done["refused"] += 1


async def clean(cluster: Cluster, broker: ControlledBroker) -> None:
    """Do what a broker does on its own: it removes files and what its creations have left."""
    broker.store.faults.clear()
    await broker.topics._forget_abandoned()
    for topic_id in list(broker.metadata.image.deleting):
        await finish_deletion(broker.metadata, topic_id, broker.node_id)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_topics_are_whole_whatever_fails(start: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(start, start + 10):
        print("seed", seed)
        random = Random(seed)

        async def scenario(cluster: Cluster, random: Random = random) -> None:
            brokers = list(cluster.brokers.values())
            clients = [work(broker, random, done) for broker in brokers for _ in range(2)]

            async def lose_leases() -> None:
                for _ in range(3):
                    await asyncio.sleep(random.random() * 0.2)
                    broker = random.choice(brokers)
                    if broker.registration.lease_id in cluster.shared.leases:
                        broker.lose_lease()

            await asyncio.gather(*clients, lose_leases())
            for broker in brokers:
                broker.store.faults.clear()
            await cluster.settle()
            for broker in brokers:
                await clean(cluster, broker)
            await cluster.settle()
            items, image = cluster.shared.keyspace.items, ClusterImage()
            image.apply(cluster.shared.keyspace.revision, items)
            left = [key for key in items if key.startswith((keys.CREATING, keys.DELETING))]
            assert left == []
            assert image.unclaimed() == []
            named = {name for name in image.topics if "." in name or "_" in name}
            assert {key for key in items if key.startswith(keys.METRIC_NAMES)} == {
                keys.metric_name(name) for name in named
            }
            for broker in brokers:
                assert broker.metadata.image.topics == image.topics
            for topic in image.topics.values():
                for state in topic.partitions:
                    epoch = cluster.brokers[state.leader].registration.epoch
                    assert state.is_led_by(state.leader, epoch), (
                        "every broker is back, and every partition led"
                    )

        run_cluster(scenario, store=WatchedStore())
    print(dict(done))
    assert all(done[name] > 10 for name in ("created", "grown", "deleted", "refused")), done
