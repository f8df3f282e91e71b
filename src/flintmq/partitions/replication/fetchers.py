"""All fetchers of a broker: one for each broker that leads partitions of which this one holds a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flintmq.cluster.peers import Peer
from flintmq.effects import Clock, Network
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import NO_LEADER, Partition, Role
from flintmq.partitions.replication.fetcher import ReplicaFetcher
from flintmq.partitions.replication.throttle import ReplicationThrottle
from flintmq.settings import BrokerConfig

_CLIENT_ID: Final = "flintmq-replica-fetcher"


class ReplicaFetchers:
    def __init__(
        self,
        partitions: LocalPartitions,
        network: Network,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._partitions = partitions
        self._network = network
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._config = config
        self._throttle = ReplicationThrottle()
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._assigned: dict[Partition, ReplicaFetcher] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """ORDER: after the partitions are loaded; from then on every change of a role comes here."""
        self._partitions.on_role(self._assign)
        for partition in self._partitions:
            self._assign(partition)

    async def close(self) -> None:
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()), *self._stopping)
        self._fetchers.clear()
        self._assigned.clear()

    def _assign(self, partition: Partition) -> None:
        follows = partition.role is Role.FOLLOWER and partition.leader not in (NO_LEADER, self._node_id)
        before = self._assigned.get(partition)
        if before is not None and (not follows or before.leader != partition.leader):
            before.remove(partition)
            del self._assigned[partition]
            self._drop_if_idle(before)
        if follows:
            fetcher = self._fetchers.get(partition.leader)
            if fetcher is None:
                fetcher = self._fetchers[partition.leader] = self._make(partition.leader)
            fetcher.add(partition)
            self._assigned[partition] = fetcher

    def _make(self, leader: int) -> ReplicaFetcher:
        timeout_s = self._config().replica_socket_timeout_ms / 1000
        fetcher = ReplicaFetcher(
            Peer(self._network, leader, _CLIENT_ID, timeout_s),
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            clock=self._clock,
            config=self._config,
            throttle=self._throttle,
        )
        fetcher.start()
        return fetcher

    def _drop_if_idle(self, fetcher: ReplicaFetcher) -> None:
        if len(fetcher):
            return
        del self._fetchers[fetcher.leader]
        task = asyncio.create_task(fetcher.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
