"""A request of every API in every version, each with the rights of the table that it needs.

A request acts on topic `t`, group `g` and transactional id `x` of a broker that `prepare` has filled; topic `n` does
not exist. The rights of a case are those of `required_rights` at the positions given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flintmq.broker.required_rights import REQUIRED_RIGHTS, RequiredRight
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.principal import Principal
from support.broker.single_broker import NODE_ID, SingleBroker
from support.wire.group_requests import (
    commit_request,
    find,
    join_request,
    stable,
    sync_request,
)
from support.wire.transactional import TransactionalClient, find_coordinator, transactional_batch
from support.wire.wire import batch_of, fetch_request, produce_request

ADMIN = Principal("User", "admin")
TOPIC, NEW_TOPIC, GROUP, TRANSACTION = "t", "n", "g", "x"
BOB_READS = AclBinding(
    AclResource.TOPIC, "t", AclPattern.LITERAL, "User:bob", "*", AclOperation.READ, AclPermission.ALLOW
)


class Stage:
    """A broker with something of everything, and the client that filled it."""

    def __init__(self, broker: SingleBroker) -> None:
        self.broker = broker
        broker.principal = ADMIN
        broker.create(TOPIC, 2)
        broker.append(TOPIC, 1_700_000_000_000, 1_700_000_000_001)
        find(broker)
        find_coordinator(broker)
        self.ask(commit_request({TOPIC: {0: 1}}), 8)
        self.transaction = TransactionalClient(broker, TRANSACTION)
        self.transaction.init()
        self.member = m.JoinGroupResponse()
        self.task_id = -1

    def ask(self, message: Message, version: int, principal: Principal = ADMIN) -> Message:
        answer: type[Message] = m.response_of(message.api_key)
        return self.broker.ask(message, answer, version, principal=principal)

    def digest(self) -> object:
        """What a request could have changed."""
        services = self.broker.services
        logs = {one.log.name: (one.log.start_offset, one.log.end_offset) for one in services.partitions}
        return services.metadata.image.revision, logs, services.maintenance.find(self.task_id + 1) is None

    # ---- what some requests need first

    def begin_transaction(self) -> None:
        assert set(self.transaction.add((TOPIC, 0)).values()) == {0}

    def join(self) -> None:
        self.member = stable(self.broker)

    def begin_task(self) -> None:
        response = self.ask(m.MaintainTopicRequest(name=TOPIC, action=MaintenanceAction.VERIFY), 0)
        assert isinstance(response, m.MaintainTopicResponse)
        self.task_id = response.task_id

    def add_acl(self) -> None:
        authorizer = self.broker.services.authorizer
        assert authorizer is not None
        assert authorizer.acls is not None
        self.broker.loop.run_until_complete(authorizer.acls.create([BOB_READS]))

    def produce_in_transaction(self) -> None:
        self.begin_transaction()
        self.ask(transactional_produce(self, 11), 11)


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


def transactional_produce(stage: Stage, version: int) -> m.ProduceRequest:
    batch = transactional_batch(b"v", producer=stage.transaction.producer)
    request = produce(stage, version, batch)
    request.transactional_id = TRANSACTION
    return request


def produce(stage: Stage, version: int, batch: bytes | None = None) -> m.ProduceRequest:
    request = produce_request(TOPIC, batch or batch_of(b"v"))
    if version >= 13:
        request.topic_data[0].topic_id = stage.broker.topic_id(TOPIC)
    return request


def fetch(stage: Stage, version: int, replica_id: int = -1) -> m.FetchRequest:
    request = fetch_request(stage.broker.topic_id(TOPIC) if version >= 13 else TOPIC, {0: 0})
    if version >= 15:
        request.replica_state.replica_id = replica_id
    else:
        request.replica_id = replica_id
    return request


def named_metadata(stage: Stage, version: int) -> m.MetadataRequest:
    return m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)],
        allow_auto_topic_creation=version < 4,
        include_cluster_authorized_operations=8 <= version <= 10,
    )


def creating_metadata(stage: Stage, version: int) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=NEW_TOPIC)])


def offset_commit(stage: Stage, version: int) -> m.OffsetCommitRequest:
    return commit_request({stage.broker.topic_id(TOPIC) if version >= 10 else TOPIC: {0: 2}})


def offset_fetch(stage: Stage, version: int, *, all_topics: bool = False) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    if version < 8:
        topic = request.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return request(group_id=GROUP, topics=None if all_topics else [topic])
    several = request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    several.topic_id = stage.broker.topic_id(TOPIC)
    group = request.OffsetFetchRequestGroup(group_id=GROUP, topics=None if all_topics else [several])
    return request(groups=[group])


def find_coordinator_of(key: str, key_type: int, version: int) -> m.FindCoordinatorRequest:
    if version >= 4:
        return m.FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    return m.FindCoordinatorRequest(key=key, key_type=key_type)


def leave(stage: Stage, version: int) -> m.LeaveGroupRequest:
    member_id = stage.member.member_id
    if version < 3:
        return m.LeaveGroupRequest(group_id=GROUP, member_id=member_id)
    return m.LeaveGroupRequest(
        group_id=GROUP, members=[m.LeaveGroupRequest.MemberIdentity(member_id=member_id)]
    )


def delete_topics(stage: Stage, version: int) -> m.DeleteTopicsRequest:
    if version < 6:
        return m.DeleteTopicsRequest(topic_names=[TOPIC])
    return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=TOPIC)])


def add_partitions(stage: Stage, version: int) -> m.AddPartitionsToTxnRequest:
    producer_id, epoch = stage.transaction.producer
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    if version < 4:
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
    transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTION, producer_id=producer_id, producer_epoch=epoch, topics=[topic]
    )
    return m.AddPartitionsToTxnRequest(transactions=[transaction])


def write_markers(stage: Stage, version: int) -> m.WriteTxnMarkersRequest:
    producer_id, epoch = stage.transaction.producer
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
    )
    return m.WriteTxnMarkersRequest(markers=[marker])


def txn_offset_commit(stage: Stage, version: int) -> m.TxnOffsetCommitRequest:
    producer_id, epoch = stage.transaction.producer
    request = m.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m"
    )
    return request(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[request.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def create_topics(stage: Stage, version: int) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=NEW_TOPIC, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def acl_filter(stage: Stage, version: int) -> m.DescribeAclsRequest:
    return m.DescribeAclsRequest(
        resource_type_filter=AclResource.ANY,
        pattern_type_filter=AclPattern.ANY,
        principal_filter="User:bob",
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )


def acl_creation(stage: Stage, version: int) -> m.CreateAclsRequest:
    resource, name, pattern, principal, host, operation, permission = BOB_READS
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )
    return m.CreateAclsRequest(creations=[creation])


def acl_deletion(stage: Stage, version: int) -> m.DeleteAclsRequest:
    selected = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=AclResource.ANY,
        pattern_type_filter=AclPattern.ANY,
        principal_filter="User:bob",
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    return m.DeleteAclsRequest(filters=[selected])


def _configs(request: Any, resource: Any, resource_type: int, name: str, config: object) -> Any:
    return request(resources=[resource(resource_type=resource_type, resource_name=name, configs=[config])])


def alter_configs(resource_type: int, name: str, setting: str, value: str) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    config = request.AlterableConfig(name=setting, value=value)
    found: m.AlterConfigsRequest = _configs(
        request, request.AlterConfigsResource, resource_type, name, config
    )
    return found


def incremental(resource_type: int, name: str, setting: str, value: str) -> m.IncrementalAlterConfigsRequest:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=setting, config_operation=0, value=value)
    found: m.IncrementalAlterConfigsRequest = _configs(
        request, request.AlterConfigsResource, resource_type, name, config
    )
    return found


def describe_configs(resource_type: int, name: str) -> m.DescribeConfigsRequest:
    request = m.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    return request(resources=[resource])


def _partitions(request: Any, topic_class: Any, partition: object, **fields: Any) -> Any:
    return request(topics=[topic_class(name=TOPIC, partitions=[partition])], **fields)


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
        lambda stage, version: _partitions(
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
        lambda stage, version: _partitions(
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
    Case(
        37,
        lambda stage, version: m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
            timeout_ms=1000,
        ),
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
        lambda stage, version: _partitions(
            m.OffsetDeleteRequest,
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic,
            m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0),
            group_id=GROUP,
        ),
        (0, 1),
    ),
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
        lambda stage, version: _partitions(
            m.DescribeSegmentsRequest,
            m.DescribeSegmentsRequest.SegmentsTopic,
            m.DescribeSegmentsRequest.SegmentsPartition(partition_index=0, start_offset=0, end_offset=9),
        ),
    ),
)
