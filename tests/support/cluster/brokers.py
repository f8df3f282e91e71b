"""Brokers of one cluster, of which only registration, controller and topics exist."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

from flintmq.cluster.broker_registration import BrokerRegistration
from flintmq.cluster.controller import Controller
from flintmq.cluster.elections import ElectionRules
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import PartitionImage
from flintmq.metadata.topic_transactions import TopicTransactions
from flintmq.testing.simulation import SimulatedClock, SimulatedLoop
from support.metadata.shared_store import SharedStore, StoreSession

TTL_S = 10.0


class ControlledBroker:
    def __init__(
        self, node_id: int, store: StoreSession, clock: SimulatedClock, clean_since: int = 0
    ) -> None:
        self.node_id = node_id
        self.store = store
        self.saved: list[int] = []
        self.metadata = ClusterMetadata(store, is_standalone=False)
        self.registration = BrokerRegistration(
            self.metadata,
            node_id=node_id,
            incarnation=f"{node_id}-{id(self)}",
            listeners=[],
            rack=None,
            clean_since=clean_since,
            ttl_s=TTL_S,
            registered=self._registered,
        )
        self.rules = ElectionRules(min_isr=1, allows_unclean=False)
        self.controller = Controller(
            self.metadata,
            node_id=node_id,
            clock=clock,
            rules=lambda topic: self.rules,
            broker_epoch=lambda: self.registration.epoch,
            lease_id=lambda: self.registration.lease_id,
        )
        self.topics = TopicTransactions(self.metadata, node_id, lambda: self.registration.epoch)

    async def _registered(self, clean_since: int) -> None:
        self.saved.append(clean_since)

    async def start(self) -> None:
        await self.metadata.start()
        await self.registration.start()
        self.controller.start()

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        return self.metadata.image.topics[topic].partitions[index]

    def lose_lease(self) -> None:
        self.store.shared.leases[self.registration.lease_id].expire()

    async def close(self) -> None:
        await self.controller.close()
        await self.registration.close()
        await self.metadata.close()


class Cluster:
    def __init__(self, loop: SimulatedLoop, store: SharedStore) -> None:
        self.loop = loop
        self.shared = store
        self.brokers: dict[int, ControlledBroker] = {}

    async def start(self, node_id: int, clean_since: int = 0) -> ControlledBroker:
        broker = ControlledBroker(node_id, self.shared.session(), self.loop.clock, clean_since)
        await broker.start()
        self.brokers[node_id] = broker
        return broker

    async def settle(self) -> None:
        """Let everything happen that needs no fault to happen."""
        await asyncio.sleep(3.0)

    @property
    def controllers(self) -> list[ControlledBroker]:
        return [broker for broker in self.brokers.values() if broker.controller.is_active]


def run_cluster(
    scenario: Callable[[Cluster], Awaitable[None]], count: int = 3, store: SharedStore | None = None
) -> None:
    async def main(loop: SimulatedLoop) -> None:
        cluster = Cluster(loop, store or SharedStore())
        for node_id in range(1, count + 1):
            await cluster.start(node_id)
        await cluster.settle()
        await scenario(cluster)
        for broker in cluster.brokers.values():
            await broker.close()

    with closing(SimulatedLoop(SimulatedClock())) as loop:
        loop.run_until_complete(main(loop))
