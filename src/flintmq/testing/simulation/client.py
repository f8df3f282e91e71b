"""Clients of a simulated cluster: frames over the simulated network, on the loop of the clients' process.

    client = WorldClient(world, "writer")
    producer = WorldProducer(client)
    offset = await producer.send("orders", 0, [b"1", b"2"])

They find leaders by Metadata, as every client does, and do not believe a leader of an older epoch than they know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from flintmq.client.fetched_records import read_batches
from flintmq.client.retries import RETRIABLE, STALE_METADATA
from flintmq.cluster.peers import Peer, PeerUnreachable
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.batch import advance_sequence
from flintmq.records.read_committed import ReadCommittedFilter
from flintmq.records.record import Record, build_batch
from flintmq.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from flintmq.testing.simulation.world import World

M = TypeVar("M", bound=Message)

ACKS_ALL: Final = -1
LATEST: Final = -1
# Produce adds partitions to transactions from version 12 on, and names topics up to it.
_METADATA, _PRODUCE, _FETCH, _LIST_OFFSETS, _CREATE_TOPICS, _INIT_PRODUCER_ID = 12, 12, 12, 7, 7, 4
_RETRY_S: Final = (0.02, 0.3)
_CONSUMER: Final = -1
_NO_SESSION: Final = -1
_PARTITION_BYTES: Final = 1 << 20


class OutcomeUnknown(FlintError):
    """A request was given up: it may have been carried out, and may still be."""


class LogTruncated(FlintError):
    """Records that a consumer has read are not in the log any more (KIP-320)."""


class PartitionLeader(NamedTuple):
    node_id: int
    epoch: int


class WorldClient:
    """One client with a connection to each broker. One request to a broker at a time."""

    def __init__(
        self, world: World, name: str, *, request_timeout_s: float = 3.0, patience_s: float = 60.0
    ) -> None:
        """`patience_s` is for how long an operation is tried again."""
        self._world = world
        self._name = name
        self._request_timeout_s = request_timeout_s
        self.patience_s = patience_s
        self.random = Random(f"{world.seed} {name}")
        self._peers: dict[int, Peer] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._leaders: dict[TopicPartition, PartitionLeader] = {}

    def now_s(self) -> float:
        return self._world.timeline.now_s

    def now_ms(self) -> int:
        return self._world.clients.clock.now_ms()

    async def call(self, node_id: int, request: Message, response_type: type[M], version: int) -> M:
        """Send one request to one broker. PeerUnreachable if there is no response."""
        if node_id not in self._peers:
            self._peers[node_id] = Peer(
                self._world.client_network, node_id, self._name, self._request_timeout_s
            )
            self._locks[node_id] = asyncio.Lock()
        async with self._locks[node_id]:
            return await self._peers[node_id].call(request, response_type, version)

    async def call_any(self, request: Message, response_type: type[M], version: int) -> M:
        """Send a request to any broker that responds, for as long as the client's patience lasts."""
        deadline_s = self.now_s() + self.patience_s
        while True:
            node_id = self.random.choice(list(self._world.brokers))
            try:
                return await self.call(node_id, request, response_type, version)
            except PeerUnreachable:
                await self.pause(deadline_s)

    async def pause(self, deadline_s: float) -> None:
        """Wait before the next attempt; OutcomeUnknown once the deadline has passed."""
        if self.now_s() > deadline_s:
            raise OutcomeUnknown(f"{self._name} gave up")
        await asyncio.sleep(self.random.uniform(*_RETRY_S))

    # ---- metadata

    async def leader(self, topic: str, partition: int, deadline_s: float) -> int:
        """Return the id of the leader, and ask for it where none is known."""
        while True:
            known = self._leaders.get((topic, partition))
            if known is not None and known.node_id >= 0:
                return known.node_id
            await self._refresh(topic)
            known = self._leaders.get((topic, partition))
            if known is None or known.node_id < 0:
                await self.pause(deadline_s)

    def forget_leader(self, topic: str, partition: int) -> None:
        """The leader is not what it was. Its epoch is remembered: an older one is not believed."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            self._leaders[topic, partition] = PartitionLeader(-1, known.epoch)

    async def _refresh(self, topic: str) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        response = await self.call_any(request, MetadataResponse, _METADATA)
        for found in response.topics:
            for partition in found.partitions:
                key = (topic, partition.partition_index)
                known = self._leaders.get(key)
                if known is None or partition.leader_epoch >= known.epoch:
                    self._leaders[key] = PartitionLeader(partition.leader_id, partition.leader_epoch)

    # ---- operations

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        on: int | None = None,
    ) -> None:
        """Create a topic; one that exists is as good. With `on` its only replicas are on that broker."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions if on is None else -1,
                    replication_factor=replication_factor if on is None else -1,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[on])
                        for index in range(partitions)
                        if on is not None
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=int(self._request_timeout_s * 1000),
        )
        deadline_s = self.now_s() + self.patience_s
        while True:
            try:
                if on is None:
                    response = await self.call_any(request, CreateTopicsResponse, _CREATE_TOPICS)
                else:
                    response = await self.call(on, request, CreateTopicsResponse, _CREATE_TOPICS)
                code = response.topics[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
                if code not in RETRIABLE and code != ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise RequestError(ErrorCode(code), response.topics[0].error_message or "")
            except PeerUnreachable:
                pass
            await self.pause(deadline_s)

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        acks: int = ACKS_ALL,
        transactional_id: str | None = None,
        retries: bool = True,
    ) -> ProduceResponse.PartitionProduceResponse:
        """Send a batch until it is written. OutcomeUnknown once the client's patience is over, or without `retries`
        if the only attempt has no response.

        The last response is returned, whatever its error code, unless the error may pass.
        """
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=int(self._request_timeout_s * 1000),
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        deadline_s = self.now_s() + self.patience_s
        while True:
            try:
                node_id = await self.leader(topic, partition, deadline_s)
                response = await self.call(node_id, request, ProduceResponse, _PRODUCE)
                result = response.responses[0].partition_responses[0]
                if result.error_code not in RETRIABLE or not retries:
                    return result
                if result.error_code in STALE_METADATA:
                    self.forget_leader(topic, partition)
            except PeerUnreachable as error:
                self.forget_leader(topic, partition)
                if not retries:
                    raise OutcomeUnknown(str(error)) from error
            await self.pause(deadline_s)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 200,
        committed_only: bool = False,
        last_fetched_epoch: int | None = None,
    ) -> FetchResponse.PartitionData:
        """Fetch once; RequestError or PeerUnreachable if that fails.

        With `last_fetched_epoch` the leader must be in the epoch that is known, and LogTruncated is raised if the
        record before `offset` is not the one of that epoch.
        """
        node_id = await self.leader(topic, partition, self.now_s() + self.patience_s)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_PARTITION_BYTES,
            isolation_level=int(committed_only),
            session_epoch=_NO_SESSION,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=partition,
                            current_leader_epoch=-1
                            if last_fetched_epoch is None
                            else self._leaders[topic, partition].epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=-1 if last_fetched_epoch is None else last_fetched_epoch,
                            partition_max_bytes=_PARTITION_BYTES,
                        )
                    ],
                )
            ],
        )
        try:
            response = await self.call(node_id, request, FetchResponse, _FETCH)
        except PeerUnreachable:
            self.forget_leader(topic, partition)
            raise
        if response.error_code:
            raise RequestError(ErrorCode(response.error_code), "fetch")
        found = response.responses[0].partitions[0]
        if found.error_code:
            self.forget_leader(topic, partition)
            raise RequestError(ErrorCode(found.error_code), f"fetch of {topic}-{partition}")
        if found.diverging_epoch.epoch >= 0:
            raise LogTruncated(
                f"{topic}-{partition} was read to {offset}, and ends at {found.diverging_epoch}"
            )
        return found

    async def end_offset(self, topic: str, partition: int, *, committed_only: bool = False) -> int:
        """Return where the partition ends for such a reader; tried again for as long as the patience lasts."""
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(committed_only),
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
                    ],
                )
            ],
        )
        deadline_s = self.now_s() + self.patience_s
        while True:
            try:
                node_id = await self.leader(topic, partition, deadline_s)
                response = await self.call(node_id, request, ListOffsetsResponse, _LIST_OFFSETS)
                found = response.topics[0].partitions[0]
                if not found.error_code:
                    return found.offset
            except PeerUnreachable:
                pass
            self.forget_leader(topic, partition)
            await self.pause(deadline_s)

    async def new_producer_id(self) -> tuple[int, int]:
        """Return an id and its epoch."""
        deadline_s = self.now_s() + self.patience_s
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            response = await self.call_any(request, InitProducerIdResponse, _INIT_PRODUCER_ID)
            if not response.error_code:
                return response.producer_id, response.producer_epoch
            await self.pause(deadline_s)


class WorldProducer:
    """An idempotent producer with one batch in flight to a partition. Of no use after OutcomeUnknown."""

    def __init__(self, client: WorldClient) -> None:
        self._client = client
        self._id: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int | None:
        """Return the offset of the first value; None if the broker only says that it has them.

        RequestError if the broker rejects the batch: earlier attempts of it may be written all the same.
        """
        client = self._client
        if self._id is None:
            self._id = await client.new_producer_id()
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            [(None, value, client.now_ms(), ()) for value in values],
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        result = await client.produce(topic, partition, batch)
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            result.base_offset = -1
        elif result.error_code:
            raise RequestError(ErrorCode(result.error_code), result.error_message or "")
        self._sequences[topic, partition] = advance_sequence(sequence, len(values))
        return result.base_offset if result.base_offset >= 0 else None


class PlainWorldProducer:
    """A producer that is not idempotent and sends each batch once."""

    def __init__(self, client: WorldClient) -> None:
        self._client = client

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int | None:
        """Return the offset of the first value. After RequestError or OutcomeUnknown the values may be written."""
        client = self._client
        batch = build_batch([(None, value, client.now_ms(), ()) for value in values])
        result = await client.produce(topic, partition, batch, retries=False)
        if result.error_code:
            raise RequestError(ErrorCode(result.error_code), result.error_message or "")
        return result.base_offset


class WorldReader:
    """Reads partitions from given offsets on, one fetch at a time."""

    def __init__(
        self,
        client: WorldClient,
        positions: Mapping[TopicPartition, int],
        *,
        committed_only: bool = False,
        checks_epochs: bool = False,
    ) -> None:
        """With `checks_epochs`, LogTruncated is raised if what was read is gone (KIP-320)."""
        self._client = client
        self.positions = dict(positions)
        self._committed_only = committed_only
        self._epochs: dict[TopicPartition, int] | None = {} if checks_epochs else None

    async def poll(self, topic: str, partition: int, *, max_wait_ms: int = 200) -> list[Record]:
        """Return the next records of a partition; none if there are none, or if it cannot be read now."""
        position = self.positions[topic, partition]
        try:
            found = await self._client.fetch(
                topic,
                partition,
                position,
                max_wait_ms=max_wait_ms,
                committed_only=self._committed_only,
                last_fetched_epoch=None if self._epochs is None else self._epochs.get((topic, partition), -1),
            )
        except (PeerUnreachable, RequestError):
            await asyncio.sleep(self._client.random.uniform(*_RETRY_S))
            return []
        committed = None
        if self._committed_only:
            committed = ReadCommittedFilter(
                (one.producer_id, one.first_offset) for one in found.aborted_transactions or ()
            )
        records, self.positions[topic, partition] = read_batches(
            found.records or b"", position, committed=committed
        )
        if self._epochs is not None and self.positions[topic, partition] > position:
            self._epochs[topic, partition] = _last_epoch(memoryview(found.records or b""))
        return records


def _last_epoch(batches: memoryview) -> int:
    """Return the leader epoch of the last whole batch."""
    epoch, start = -1, 0
    while start + 16 <= len(batches):
        end = start + 12 + int.from_bytes(batches[start + 8 : start + 12], "big")
        if end > len(batches):
            break
        epoch, start = int.from_bytes(batches[start + 12 : start + 16], "big"), end
    return epoch
