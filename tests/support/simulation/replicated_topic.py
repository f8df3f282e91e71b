"""Three simulated brokers and one topic of one partition with a replica on each, for cases in few steps.

    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[1].kill()
        cluster.wait(lambda: cluster.leader != 1)

The replicas are on the brokers 1, 2 and 3, in that order, so broker 1 leads first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from msgspec.structs import replace

from flintmq.client.fetched_records import read_batches
from flintmq.cluster.peers import PeerUnreachable
from flintmq.errors import ErrorCode
from flintmq.metadata import keys
from flintmq.metadata.keys import PartitionValue
from flintmq.metadata.store import Put
from flintmq.partitions.partition import Partition
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation.broker_node import BrokerNode
from flintmq.testing.simulation.client import ACKS_ALL, WorldClient, WorldProducer, WorldReader
from flintmq.testing.simulation.fault_schedule import both_ways
from flintmq.testing.simulation.wires import STORE, Link, broker_name
from flintmq.testing.simulation.world import World

T = TypeVar("T")

TOPIC = "orders"
NODES = (1, 2, 3)
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
CONFIGS = {"min.insync.replicas": "2", "flush.messages": "1"}
_PRODUCE, _LIST_OFFSETS, _CREATE_TOPICS = 12, 7, 7
_TIMEOUT_MS = 3_000
_ALL_BYTES = 1 << 24


class ReplicatedTopic:
    def __init__(
        self,
        *,
        seed: int = 1,
        configs: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.world = World(seed, brokers=len(NODES), settings={**SETTINGS, **(settings or {})})
        self._configs = {**CONFIGS, **(configs or {})}
        self.client = WorldClient(self.world, "client", patience_s=120.0)
        self.producer = WorldProducer(self.client)
        self.key = ""
        """Of the partition in the metadata store."""

    def __enter__(self) -> ReplicatedTopic:
        self.world.__enter__()
        self.world.start()
        self.create_topic(TOPIC, [list(NODES)], self._configs)
        self.wait(lambda: all(self.topic_image(node) is not None for node in NODES))
        self.key = keys.partition(self.topic_image(1).id, 0)
        self.wait(lambda: self.isr == list(NODES))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.world.__exit__(kind, error, traceback)

    # ---- the world

    @property
    def brokers(self) -> dict[int, BrokerNode]:
        return self.world.brokers

    def wait(self, is_done: Callable[[], bool], *, within_s: float = 120.0) -> None:
        self.world.run_until_true(is_done, within_s=within_s)

    def run(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.world.clients.spawn(work)

    def result(self, work: Coroutine[Any, Any, T], *, within_s: float = 300.0) -> T:
        return self.world.run_until(self.spawn(work), within_s=within_s)

    def block(self, links: Sequence[Link]) -> None:
        self.world.wires.block(links)

    def unblock(self, links: Sequence[Link]) -> None:
        self.world.wires.unblock(links)

    def restart_after(self, node: int, down_s: float) -> None:
        """Kill a broker, and start it again."""
        self.brokers[node].start_after_end(down_s)
        self.brokers[node].kill()

    # ---- metadata

    def topic_image(self, node: int) -> Any:
        core = self.brokers[node].core
        return None if core is None else core.metadata.image.topics.get(TOPIC)

    @property
    def state(self) -> PartitionValue:
        """What the metadata store holds."""
        store = self.world.store
        assert store is not None
        return keys.decode_partition(store.items[self.key].value)

    @property
    def leader(self) -> int:
        return self.state.leader

    @property
    def isr(self) -> list[int]:
        return sorted(self.state.isr)

    @property
    def controller(self) -> int:
        """The broker that holds the controller's key; -1 if nobody does."""
        store = self.world.store
        assert store is not None
        item = store.items.get(keys.CONTROLLER)
        return -1 if item is None else keys.decode_controller(item.value).node

    def partition(self, node: int) -> Partition:
        core = self.brokers[node].core
        assert core is not None, f"broker {node} does not run"
        partition = core.partitions.get(TOPIC, 0)
        assert partition is not None
        return partition

    def elect(self, node: int) -> None:
        """Make a member of the ISR the leader at once, as a controller does."""
        store, value = self.world.store, self.state
        assert store is not None
        assert node in value.isr
        elected = replace(value, leader=node, epoch=value.epoch + 1)
        revision = store.items[self.key].revision
        assert store.txn({self.key: revision}, {self.key: Put(keys.encode(elected))}).committed

    def run_checked(self, seconds: float) -> None:
        """Run, and check all the time that every member of the ISR holds everything that is committed."""
        end_s = self.world.timeline.now_s + seconds
        while self.world.timeline.now_s < end_s:
            self.world.step()
            value = self.state
            if value.leader < 0 or self.brokers[value.leader].core is None:
                continue
            committed = self.partition(value.leader).log.high_watermark
            for node in value.isr:
                if self.brokers[node].core is not None:
                    end = self.partition(node).log.end_offset
                    assert end >= committed, (
                        f"broker {node} is in the ISR, ends at {end}, and not at {committed}"
                    )

    def wait_until_in_sync(self) -> None:
        """Wait until all replicas are in the ISR, and have everything."""
        self.wait(lambda: all(self.brokers[node].is_up for node in NODES))
        self.wait(lambda: self.isr == list(NODES))
        self.wait(lambda: len({self.partition(node).log.end_offset for node in NODES}) == 1)
        self.wait(lambda: len({self.partition(node).log.high_watermark for node in NODES}) == 1)

    # ---- clients

    def create_topic(
        self,
        name: str,
        assignments: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
        on: int = 1,
    ) -> None:
        """Ask the broker `on` for a topic with these replicas."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(
                            partition_index=index, broker_ids=list(nodes)
                        )
                        for index, nodes in enumerate(assignments)
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        response = self.result(self.client.call(on, request, CreateTopicsResponse, _CREATE_TOPICS))
        assert response.topics[0].error_code == 0, response.topics[0]

    def send(self, *values: str) -> int | None:
        """Send with acks=all until it is acknowledged, as an idempotent producer."""
        return self.result(self.producer.send(TOPIC, 0, [value.encode() for value in values]))

    async def produce_to(
        self,
        node: int,
        *values: str,
        acks: int = ACKS_ALL,
        timeout_ms: int = _TIMEOUT_MS,
        name: str = "other",
    ) -> ErrorCode | None:
        """Send a batch without an idempotent producer to one broker, once; None if there is no response."""
        batch = build_batch([(None, value.encode(), self.client.now_ms(), ()) for value in values])
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=TOPIC,
                    partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
                )
            ],
        )
        client = WorldClient(self.world, name, request_timeout_s=60.0)
        try:
            response = await client.call(node, request, ProduceResponse, _PRODUCE)
        except PeerUnreachable:
            return None
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def list_offset(self, node: int, timestamp: int = -1) -> tuple[ErrorCode, int]:
        """Ask one broker for an offset of the partition, as a consumer."""
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
        )
        response = await self.client.call(node, request, ListOffsetsResponse, _LIST_OFFSETS)
        found = response.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset

    def read(self, *, committed_only: bool = False) -> list[str]:
        """Return everything that a consumer finds."""

        async def read_all() -> list[str]:
            client = WorldClient(self.world, "reader", patience_s=120.0)
            end = await client.end_offset(TOPIC, 0)
            one = WorldReader(client, {(TOPIC, 0): 0}, committed_only=committed_only)
            found: list[str] = []
            while one.positions[TOPIC, 0] < end:
                found += [(record.value or b"").decode() for record in await one.poll(TOPIC, 0)]
            return found

        return self.result(read_all())

    def written(self, node: int) -> list[str]:
        """Return what the log of a replica holds, committed or not."""
        log = self.partition(node).log
        values, offset = [], log.start_offset
        while offset < log.end_offset:
            found = reader.read(log, offset, _ALL_BYTES, Isolation.LOG_END, at_least_one=True)
            assert found is not None
            records, offset = read_batches(found.read(), offset)
            values += [(record.value or b"").decode() for record in records]
        return values


def between(one: int, *others: int) -> tuple[Link, ...]:
    """Return the links between a broker and others, both ways."""
    return both_ways([broker_name(one)], [broker_name(other) for other in others])


def to_store(*nodes: int) -> tuple[Link, ...]:
    """Return the links between brokers and the store, both ways."""
    return both_ways([broker_name(node) for node in nodes], [STORE])
