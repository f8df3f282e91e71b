"""What a client knows of a cluster: brokers, topics, leaders. Pure; only answers to Metadata change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flintmq.client.addresses import Address
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import MetadataResponse
from flintmq.records.uuids import ZERO_UUID


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: int
    """-1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    id: bytes
    """All zeros where the broker is too old to tell."""
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions.values()), default=0)

    @property
    def has_id(self) -> bool:
        return self.id != ZERO_UUID


@dataclass(slots=True)
class MetadataCache:
    cluster_id: str | None = None
    controller: int = -1
    brokers: dict[int, Address] = field(default_factory=dict)
    racks: dict[int, str | None] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)

    def update(self, response: MetadataResponse) -> dict[str, ErrorCode]:
        """Learn from an answer; returns the errors of topics. Those not asked about stay as they were."""
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id
        self.brokers = {one.node_id: Address(one.host, one.port) for one in response.brokers}
        self.racks = {one.node_id: one.rack for one in response.brokers}
        failed: dict[str, ErrorCode] = {}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                failed[name] = _code(topic.error_code)
                self.topics.pop(name, None)
            else:
                self.topics[name] = TopicMetadata(name, topic.topic_id, topic.is_internal, _partitions(topic))
        return failed

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker to ask, or -1."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known else None
        return found.leader if found else -1


def _partitions(topic: MetadataResponse.MetadataResponseTopic) -> dict[int, PartitionMetadata]:
    views = [
        PartitionMetadata(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
        )
        for one in topic.partitions
    ]
    return {view.index: view for view in sorted(views, key=lambda view: view.index)}


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
