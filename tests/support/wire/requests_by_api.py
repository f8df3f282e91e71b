"""A request of every API in every version, each with the rights of the table that it needs.

The rights of a case are those of `required_rights` at the positions given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flintmq.broker.required_rights import REQUIRED_RIGHTS, RequiredRight
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    AclBinding,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.principal import Principal
from support.broker.single_broker import NODE_ID
from support.wire.authorized_requests import (
    GROUP,
    NEW_TOPIC,
    TOPIC,
    TRANSACTION,
    Stage,
    acl_creation,
    acl_deletion,
    acl_filter,
    add_partitions,
    alter_configs,
    create_topics,
    creating_metadata,
    delete_topics,
    describe_configs,
    fetch,
    find_coordinator_of,
    incremental,
    leave,
    named_metadata,
    offset_commit,
    offset_fetch,
    partitions_of,
    produce,
    quota_alteration,
    quota_description,
    scram_deletion,
    scram_description,
    scram_upsertion,
    token_creation,
    transactional_produce,
    txn_offset_commit,
    write_markers,
)
from support.wire.group_requests import join_request, sync_request
from support.wire.wire import batch_of, produce_request


@dataclass(frozen=True)
class Case:
    key: int
    build: Callable[[Stage, int], Message]
    rights: tuple[int, ...] = (0,)
    """Positions in the table."""
    name: str = ""
    topic: str = TOPIC
    prepare: Callable[[Stage], object] = lambda stage: None
    versions: tuple[int, int] = (0, 99)
    settings: tuple[tuple[str, str], ...] = ()

    def needed(self, version: int) -> list[RequiredRight]:
        table = REQUIRED_RIGHTS[self.key]
        return [
            right
            for at in self.rights
            if (right := table[at]).versions is None or right.versions[0] <= version <= right.versions[1]
        ]

    def acl(self, right: RequiredRight, principal: Principal) -> AclBinding:
        names = {
            AclResource.TOPIC: self.topic,
            AclResource.GROUP: GROUP,
            AclResource.CLUSTER: CLUSTER_NAME,
            AclResource.TRANSACTIONAL_ID: TRANSACTION,
            AclResource.DELEGATION_TOKEN: "*",
            AclResource.USER: "User:bob",
        }
        return AclBinding(
            right.resource,
            names[right.resource],
            AclPattern.LITERAL,
            str(principal),
            "*",
            right.operation,
            AclPermission.ALLOW,
        )


_WITH_TOKENS = (("delegation.token.secret.key", "a secret key"),)
_BROKER, _OF_TOPIC, _LOGGER = 4, 2, 8

CASES: tuple[Case, ...] = (
    Case(0, produce),
    Case(0, transactional_produce, (0, 1), "transactional", prepare=Stage.begin_transaction),
    Case(
        0,
        lambda stage, version: produce_request(NEW_TOPIC, batch_of(b"v")),
        (0, 2),
        "creating",
        topic=NEW_TOPIC,
        versions=(3, 12),
        settings=(("flint.auto.create.topics.on.produce", "true"),),
    ),
    Case(1, fetch),
    Case(1, lambda stage, version: fetch(stage, version, 1), (1,), "replica"),
    Case(
        2,
        lambda stage, version: partitions_of(
            m.ListOffsetsRequest,
            m.ListOffsetsRequest.ListOffsetsTopic,
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1),
            replica_id=-1,
        ),
    ),
    Case(3, named_metadata, (0, 3)),
    Case(3, lambda stage, version: m.MetadataRequest(topics=[] if version == 0 else None), (1,), "all"),
    Case(3, creating_metadata, (0, 2), "creating", topic=NEW_TOPIC),
    Case(8, offset_commit, (0, 1)),
    Case(9, offset_fetch, (0, 1)),
    Case(
        9,
        lambda stage, version: offset_fetch(stage, version, all_topics=True),
        (0, 2),
        "all",
        versions=(2, 99),
    ),
    Case(10, lambda stage, version: find_coordinator_of(GROUP, 0, version), (0,), "group"),
    Case(
        10,
        lambda stage, version: find_coordinator_of(TRANSACTION, 1, version),
        (1,),
        "transaction",
        versions=(1, 99),
    ),
    Case(11, lambda stage, version: join_request()),
    Case(
        12,
        lambda stage, version: m.HeartbeatRequest(
            group_id=GROUP, generation_id=stage.member.generation_id, member_id=stage.member.member_id
        ),
        prepare=Stage.join,
    ),
    Case(13, leave, prepare=Stage.join),
    Case(14, lambda stage, version: sync_request(stage.member, version), prepare=Stage.join),
    Case(15, lambda stage, version: m.DescribeGroupsRequest(groups=[GROUP])),
    Case(16, lambda stage, version: m.ListGroupsRequest()),
    Case(17, lambda stage, version: m.SaslHandshakeRequest(mechanism="PLAIN"), ()),
    Case(
        18,
        lambda stage, version: m.ApiVersionsRequest(client_software_name="test", client_software_version="1"),
        (),
    ),
    Case(19, create_topics, (0, 1), topic=NEW_TOPIC),
    Case(20, delete_topics),
    Case(
        20,
        lambda stage, version: m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=stage.broker.topic_id(TOPIC))]
        ),
        name="by id",
        versions=(6, 6),
    ),
    Case(
        21,
        lambda stage, version: partitions_of(
            m.DeleteRecordsRequest,
            m.DeleteRecordsRequest.DeleteRecordsTopic,
            m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1),
            timeout_ms=1000,
        ),
    ),
    Case(
        22,
        lambda stage, version: m.InitProducerIdRequest(
            transactional_id=TRANSACTION, transaction_timeout_ms=1000
        ),
        (0,),
        "transactional",
    ),
    Case(
        22,
        lambda stage, version: m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        (1,),
        "idempotent",
    ),
    Case(
        23,
        lambda stage, version: m.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=TOPIC,
                    partitions=[
                        m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                    ],
                )
            ],
        ),
    ),
    Case(24, add_partitions, (0, 1, 2)),
    Case(
        25,
        lambda stage, version: m.AddOffsetsToTxnRequest(
            transactional_id=TRANSACTION,
            producer_id=stage.transaction.producer[0],
            producer_epoch=stage.transaction.producer[1],
            group_id=GROUP,
        ),
        (0, 1),
    ),
    Case(
        26,
        lambda stage, version: m.EndTxnRequest(
            transactional_id=TRANSACTION,
            producer_id=stage.transaction.producer[0],
            producer_epoch=stage.transaction.producer[1],
            committed=False,
        ),
        prepare=Stage.begin_transaction,
    ),
    Case(27, write_markers, prepare=Stage.produce_in_transaction),
    Case(28, txn_offset_commit, (0, 1, 2), prepare=lambda stage: stage.transaction.add_offsets(GROUP)),
    Case(29, acl_filter, prepare=Stage.add_acl),
    Case(30, acl_creation),
    Case(31, acl_deletion, prepare=Stage.add_acl),
    Case(32, lambda stage, version: describe_configs(_OF_TOPIC, TOPIC), (0,), "topic"),
    Case(32, lambda stage, version: describe_configs(_BROKER, str(NODE_ID)), (1,), "broker"),
    Case(32, lambda stage, version: describe_configs(_LOGGER, str(NODE_ID)), (1,), "logger"),
    Case(33, lambda stage, version: alter_configs(_OF_TOPIC, TOPIC, "retention.ms", "5000"), (0,), "topic"),
    Case(33, lambda stage, version: alter_configs(_BROKER, "", "log.retention.ms", "5000"), (1,), "broker"),
    Case(
        34,
        lambda stage, version: m.AlterReplicaLogDirsRequest(
            dirs=[
                m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                    path=stage.broker.path,
                    topics=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])],
                )
            ]
        ),
    ),
    Case(35, lambda stage, version: m.DescribeLogDirsRequest(topics=None), (0, 1)),
    Case(36, lambda stage, version: m.SaslAuthenticateRequest(auth_bytes=b""), ()),
    Case(
        37,
        lambda stage, version: m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
            timeout_ms=1000,
        ),
    ),
    Case(
        38,
        lambda stage, version: token_creation("bob"),
        name="another owner",
        versions=(3, 3),
        settings=_WITH_TOKENS,
    ),
    Case(38, lambda stage, version: token_creation(), (), settings=_WITH_TOKENS),
    Case(
        39,
        lambda stage, version: m.RenewDelegationTokenRequest(hmac=stage.hmac, renew_period_ms=1000),
        (),
        prepare=lambda stage: stage.create_token("admin", "alice"),
        settings=_WITH_TOKENS,
    ),
    Case(
        40,
        lambda stage, version: m.ExpireDelegationTokenRequest(hmac=stage.hmac, expiry_time_period_ms=-1),
        (),
        prepare=lambda stage: stage.create_token("admin", "alice"),
        settings=_WITH_TOKENS,
    ),
    Case(
        41,
        lambda stage, version: m.DescribeDelegationTokenRequest(owners=None),
        prepare=Stage.create_token,
        settings=_WITH_TOKENS,
    ),
    Case(42, lambda stage, version: m.DeleteGroupsRequest(groups_names=[GROUP])),
    Case(
        43,
        lambda stage, version: m.ElectLeadersRequest(
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])]
        ),
    ),
    Case(44, lambda stage, version: incremental(_OF_TOPIC, TOPIC, "retention.ms", "5000"), (0,), "topic"),
    Case(44, lambda stage, version: incremental(_BROKER, "", "log.retention.ms", "5000"), (1,), "broker"),
    Case(44, lambda stage, version: incremental(_LOGGER, str(NODE_ID), "root", "WARN"), (1,), "logger"),
    Case(
        45,
        lambda stage, version: m.AlterPartitionReassignmentsRequest(
            topics=[
                m.AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=TOPIC,
                    partitions=[
                        m.AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=0, replicas=[NODE_ID]
                        )
                    ],
                )
            ]
        ),
    ),
    Case(46, lambda stage, version: m.ListPartitionReassignmentsRequest(topics=None)),
    Case(
        47,
        lambda stage, version: partitions_of(
            m.OffsetDeleteRequest,
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic,
            m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0),
            group_id=GROUP,
        ),
        (0, 1),
    ),
    Case(48, quota_description),
    Case(49, quota_alteration),
    Case(50, scram_description, prepare=Stage.add_scram_user),
    Case(51, scram_upsertion),
    Case(51, scram_deletion, name="deletion", prepare=Stage.add_scram_user),
    Case(
        55,
        lambda stage, version: m.DescribeQuorumRequest(
            topics=[
                m.DescribeQuorumRequest.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)],
                )
            ]
        ),
    ),
    Case(
        57,
        lambda stage, version: m.UpdateFeaturesRequest(
            feature_updates=[
                m.UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=2)
            ]
        ),
    ),
    Case(
        60,
        lambda stage, version: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    Case(
        61,
        lambda stage, version: m.DescribeProducersRequest(
            topics=[m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
        ),
    ),
    Case(
        65,
        lambda stage, version: m.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
        (0, 1),
        prepare=Stage.begin_transaction,
    ),
    Case(66, lambda stage, version: m.ListTransactionsRequest()),
    Case(74, lambda stage, version: m.ListConfigResourcesRequest()),
    Case(
        75,
        lambda stage, version: m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)]
        ),
    ),
    Case(75, lambda stage, version: m.DescribeTopicPartitionsRequest(), (1,), "all"),
    Case(
        15000,
        lambda stage, version: m.MaintainTopicRequest(name=TOPIC, action=MaintenanceAction.VERIFY),
        prepare=Stage.begin_task,
    ),
    Case(
        15001,
        lambda stage, version: m.DescribeTopicTaskRequest(task_id=stage.task_id),
        prepare=Stage.begin_task,
    ),
    Case(15002, lambda stage, version: m.DescribeTopicHealthRequest(name=TOPIC)),
    Case(
        15003,
        lambda stage, version: m.AbortTransactionRequest(transactional_id=TRANSACTION),
        prepare=Stage.begin_transaction,
    ),
    Case(
        15004,
        lambda stage, version: partitions_of(
            m.DescribeSegmentsRequest,
            m.DescribeSegmentsRequest.SegmentsTopic,
            m.DescribeSegmentsRequest.SegmentsPartition(partition_index=0, start_offset=0, end_offset=9),
        ),
    ),
)
