"""The list of APIs: the one source for ApiVersions, dispatch and `docs/compatibility.md`.

For each: its versions, who may use it and when, what it acts on, and its handler. A version range is that
of Apache Kafka 4.3; nothing is listed whose effect is absent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flintmq.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.protocol.structures import Message

Handler = Callable[[Request, Any, Services], "Message | Awaitable[Message | None] | None"]
"""Takes the decoded request and gives the response, at once or awaited."""
RawHandler = Callable[[Request, Services], "Awaitable[None] | None"]
"""Reads the frame itself and sets `request.pieces`, or answers later by `request.answer`."""


class Resource(Enum):
    """What an API acts on, and so what a principal must be allowed to touch."""

    NONE = "none"
    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    versions: tuple[int, int]
    resource: Resource
    handler: Handler | None = None
    raw: RawHandler | None = None
    advertised_from: int | None = None
    """A lower version than is served, for clients that look for it."""
    before_authentication: bool = False
    brokers_only: bool = False

    @property
    def advertised(self) -> tuple[int, int]:
        lowest = self.versions[0] if self.advertised_from is None else self.advertised_from
        return lowest, self.versions[1]


TOPIC, CLUSTER, NONE = Resource.TOPIC, Resource.CLUSTER, Resource.NONE

APIS: tuple[Api, ...] = (
    # librdkafka takes a broker without Produce 0 for one that knows no compression.
    Api(0, "Produce", (3, 13), TOPIC, raw=produce.handle, advertised_from=0),
    Api(1, "Fetch", (4, 18), TOPIC, raw=fetch.handle),
    Api(2, "ListOffsets", (1, 11), TOPIC, list_offsets.handle),
    Api(3, "Metadata", (0, 13), TOPIC, metadata.handle),
    Api(9, "OffsetFetch", (1, 10), Resource.GROUP, offset_fetch.handle),
    Api(10, "FindCoordinator", (0, 6), Resource.GROUP, find_coordinator.handle),
    Api(18, "ApiVersions", (0, 4), NONE, api_versions.handle, before_authentication=True),
    Api(19, "CreateTopics", (2, 7), TOPIC, create_topics.handle),
    Api(20, "DeleteTopics", (1, 6), TOPIC, delete_topics.handle),
    Api(21, "DeleteRecords", (0, 2), TOPIC, delete_records.handle),
    Api(22, "InitProducerId", (0, 5), CLUSTER, init_producer_id.handle),
    Api(23, "OffsetForLeaderEpoch", (2, 4), TOPIC, offset_for_leader_epoch.handle),
    Api(32, "DescribeConfigs", (1, 4), CLUSTER, describe_configs.handle),
    Api(33, "AlterConfigs", (0, 2), CLUSTER, alter_configs.handle),
    Api(34, "AlterReplicaLogDirs", (1, 2), CLUSTER, alter_replica_log_dirs.handle),
    Api(35, "DescribeLogDirs", (1, 5), CLUSTER, describe_log_dirs.handle),
    Api(37, "CreatePartitions", (0, 3), TOPIC, create_partitions.handle),
    Api(43, "ElectLeaders", (0, 2), CLUSTER, elect_leaders.handle),
    Api(44, "IncrementalAlterConfigs", (0, 1), CLUSTER, incremental_alter_configs.handle),
    Api(45, "AlterPartitionReassignments", (0, 1), CLUSTER, alter_partition_reassignments.handle),
    Api(46, "ListPartitionReassignments", (0, 0), CLUSTER, list_partition_reassignments.handle),
    Api(55, "DescribeQuorum", (0, 2), CLUSTER, describe_quorum.handle),
    Api(60, "DescribeCluster", (0, 2), CLUSTER, describe_cluster.handle),
    Api(61, "DescribeProducers", (0, 0), TOPIC, describe_producers.handle),
    Api(74, "ListConfigResources", (0, 1), CLUSTER, list_config_resources.handle),
    Api(75, "DescribeTopicPartitions", (0, 0), TOPIC, describe_topic_partitions.handle),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
