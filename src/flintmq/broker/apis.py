"""The list of APIs: the one source for ApiVersions, dispatch and `docs/compatibility.md`.

For each: its versions, who may use it and when, what it acts on, and its handler. A version range is that
of Apache Kafka 4.3; nothing is listed whose effect is absent. At the end stand FlintMQ's own, which ApiVersions does
not tell of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flintmq.broker.handlers import fetch, produce
from flintmq.broker.handlers.cluster import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    find_coordinator,
    list_partition_reassignments,
    metadata,
    update_features,
)
from flintmq.broker.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from flintmq.broker.handlers.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from flintmq.broker.handlers.own import (
    abort_transaction,
    describe_segments,
    describe_topic_health,
    describe_topic_task,
    maintain_topic,
)
from flintmq.broker.handlers.security import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from flintmq.broker.handlers.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    list_offsets,
    offset_for_leader_epoch,
)
from flintmq.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from flintmq.broker.request import Request
from flintmq.broker.required_rights import REQUIRED_RIGHTS, RequiredRight
from flintmq.broker.services import Services
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import FIRST_OWN_KEY
from flintmq.settings import BrokerConfig

Handler = Callable[[Request, Any, Services], "Message | Awaitable[Message] | None"]
"""Takes the decoded request and returns the response, a coroutine that does, or None: a coordinator responds."""
RawHandler = Callable[[Request, Services], "Awaitable[None] | None"]
"""Reads the frame itself and responds by `request.respond`, at once or later."""


class Resource(Enum):
    """What an API acts on, for the documentation; the rights it needs are in `required_rights`."""

    NONE = "none"
    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    DELEGATION_TOKEN = "delegation token"


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
    has_quotas: bool = True
    """Whether it counts in the quotas of a client; not so what brokers ask of each other, and authentication."""

    @property
    def advertised(self) -> tuple[int, int]:
        lowest = self.versions[0] if self.advertised_from is None else self.advertised_from
        return lowest, self.versions[1]

    @property
    def rights(self) -> tuple[RequiredRight, ...]:
        """What a principal must be allowed to do."""
        return REQUIRED_RIGHTS[self.key]

    @property
    def is_own(self) -> bool:
        """Of FlintMQ, not of Kafka."""
        return self.key >= FIRST_OWN_KEY


TOPIC, CLUSTER, NONE, GROUP = Resource.TOPIC, Resource.CLUSTER, Resource.NONE, Resource.GROUP
TRANSACTIONAL_ID, TOKEN = Resource.TRANSACTIONAL_ID, Resource.DELEGATION_TOKEN

APIS: tuple[Api, ...] = (
    # librdkafka takes a broker without Produce 0 for one that knows no compression.
    Api(0, "Produce", (3, 13), TOPIC, raw=produce.handle, advertised_from=0),
    Api(1, "Fetch", (4, 18), TOPIC, raw=fetch.handle),
    Api(2, "ListOffsets", (1, 11), TOPIC, list_offsets.handle),
    Api(3, "Metadata", (0, 13), TOPIC, metadata.handle),
    Api(8, "OffsetCommit", (2, 10), GROUP, offset_commit.handle),
    Api(9, "OffsetFetch", (1, 10), GROUP, offset_fetch.handle),
    Api(10, "FindCoordinator", (0, 6), NONE, find_coordinator.handle),
    Api(11, "JoinGroup", (0, 9), GROUP, join_group.handle),
    Api(12, "Heartbeat", (0, 4), GROUP, heartbeat.handle),
    Api(13, "LeaveGroup", (0, 5), GROUP, leave_group.handle),
    Api(14, "SyncGroup", (0, 5), GROUP, sync_group.handle),
    Api(15, "DescribeGroups", (0, 6), GROUP, describe_groups.handle),
    Api(16, "ListGroups", (0, 5), CLUSTER, list_groups.handle),
    Api(
        17, "SaslHandshake", (0, 1), NONE, sasl_handshake.handle, before_authentication=True, has_quotas=False
    ),
    Api(18, "ApiVersions", (0, 4), NONE, api_versions.handle, before_authentication=True),
    Api(19, "CreateTopics", (2, 7), TOPIC, create_topics.handle),
    Api(20, "DeleteTopics", (1, 6), TOPIC, delete_topics.handle),
    Api(21, "DeleteRecords", (0, 2), TOPIC, delete_records.handle),
    Api(22, "InitProducerId", (0, 5), CLUSTER, init_producer_id.handle),
    Api(23, "OffsetForLeaderEpoch", (2, 4), TOPIC, offset_for_leader_epoch.handle),
    Api(24, "AddPartitionsToTxn", (0, 5), TRANSACTIONAL_ID, add_partitions_to_txn.handle),
    Api(25, "AddOffsetsToTxn", (0, 4), GROUP, add_offsets_to_txn.handle),
    Api(26, "EndTxn", (0, 5), TRANSACTIONAL_ID, end_txn.handle),
    Api(27, "WriteTxnMarkers", (1, 2), CLUSTER, write_txn_markers.handle, has_quotas=False),
    Api(28, "TxnOffsetCommit", (0, 5), GROUP, txn_offset_commit.handle),
    Api(29, "DescribeAcls", (1, 3), CLUSTER, describe_acls.handle),
    Api(30, "CreateAcls", (1, 3), CLUSTER, create_acls.handle),
    Api(31, "DeleteAcls", (1, 3), CLUSTER, delete_acls.handle),
    Api(32, "DescribeConfigs", (1, 4), CLUSTER, describe_configs.handle),
    Api(33, "AlterConfigs", (0, 2), CLUSTER, alter_configs.handle),
    Api(34, "AlterReplicaLogDirs", (1, 2), CLUSTER, alter_replica_log_dirs.handle),
    Api(35, "DescribeLogDirs", (1, 5), CLUSTER, describe_log_dirs.handle),
    Api(
        36,
        "SaslAuthenticate",
        (0, 2),
        NONE,
        sasl_authenticate.handle,
        before_authentication=True,
        has_quotas=False,
    ),
    Api(37, "CreatePartitions", (0, 3), TOPIC, create_partitions.handle),
    Api(38, "CreateDelegationToken", (1, 3), TOKEN, create_delegation_token.handle),
    Api(39, "RenewDelegationToken", (1, 2), TOKEN, renew_delegation_token.handle),
    Api(40, "ExpireDelegationToken", (1, 2), TOKEN, expire_delegation_token.handle),
    Api(41, "DescribeDelegationToken", (1, 3), TOKEN, describe_delegation_token.handle),
    Api(42, "DeleteGroups", (0, 2), GROUP, delete_groups.handle),
    Api(43, "ElectLeaders", (0, 2), CLUSTER, elect_leaders.handle),
    Api(44, "IncrementalAlterConfigs", (0, 1), CLUSTER, incremental_alter_configs.handle),
    Api(45, "AlterPartitionReassignments", (0, 1), CLUSTER, alter_partition_reassignments.handle),
    Api(46, "ListPartitionReassignments", (0, 0), CLUSTER, list_partition_reassignments.handle),
    Api(47, "OffsetDelete", (0, 0), GROUP, offset_delete.handle),
    Api(48, "DescribeClientQuotas", (0, 1), CLUSTER, describe_client_quotas.handle),
    Api(49, "AlterClientQuotas", (0, 1), CLUSTER, alter_client_quotas.handle),
    Api(50, "DescribeUserScramCredentials", (0, 0), CLUSTER, describe_user_scram_credentials.handle),
    Api(51, "AlterUserScramCredentials", (0, 0), CLUSTER, alter_user_scram_credentials.handle),
    Api(55, "DescribeQuorum", (0, 2), CLUSTER, describe_quorum.handle),
    Api(57, "UpdateFeatures", (0, 2), CLUSTER, update_features.handle),
    Api(60, "DescribeCluster", (0, 2), CLUSTER, describe_cluster.handle),
    Api(61, "DescribeProducers", (0, 0), TOPIC, describe_producers.handle),
    Api(65, "DescribeTransactions", (0, 0), TRANSACTIONAL_ID, describe_transactions.handle),
    Api(66, "ListTransactions", (0, 2), TRANSACTIONAL_ID, list_transactions.handle),
    Api(74, "ListConfigResources", (0, 1), CLUSTER, list_config_resources.handle),
    Api(75, "DescribeTopicPartitions", (0, 0), TOPIC, describe_topic_partitions.handle),
    Api(15000, "MaintainTopic", (0, 0), TOPIC, maintain_topic.handle),
    Api(15001, "DescribeTopicTask", (0, 0), CLUSTER, describe_topic_task.handle),
    Api(15002, "DescribeTopicHealth", (0, 0), TOPIC, describe_topic_health.handle),
    Api(15003, "AbortTransaction", (0, 0), TRANSACTIONAL_ID, abort_transaction.handle),
    Api(15004, "DescribeSegments", (0, 0), TOPIC, describe_segments.handle),
)

ADVERTISED: tuple[Api, ...] = tuple(api for api in APIS if not api.brokers_only and not api.is_own)
"""What ApiVersions tells clients of."""

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}


def served(apis: tuple[Api, ...], config: BrokerConfig) -> tuple[Api, ...]:
    """The list without what is switched off (`flint.consumer.groups.enable`)."""
    if config.flint_consumer_groups_enable:
        return apis
    return tuple(api for api in apis if api.resource is not GROUP and api.name != "ListGroups")
