"""Requests that need rights, on a broker that has something of everything.

They act on topic `t`, group `g` and transactional id `x`; topic `n` does not exist.
"""

from __future__ import annotations

from typing import Any

from flintmq.broker.request import ClientSession
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.security.authorization.model import (
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.principal import Principal
from support.broker.single_broker import SingleBroker
from support.wire.group_requests import (
    commit_request,
    find,
    stable,
)
from support.wire.transactional import TransactionalClient, find_coordinator, transactional_batch
from support.wire.wire import batch_of, fetch_request, produce_request

ADMIN = Principal("User", "admin")
TOKEN_APIS = range(38, 42)
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
        self.hmac = b""

    def ask(self, message: Message, version: int, principal: Principal = ADMIN) -> Message:
        answer: type[Message] = m.response_of(message.api_key)
        if message.api_key in TOKEN_APIS:
            session = sasl_session(principal)
            return self.broker.loop.run_until_complete(
                self.broker.exchange(message, answer, version, session=session)
            )
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

    def add_scram_user(self) -> None:
        response = self.ask(scram_upsertion(self, 0), 0)
        assert isinstance(response, m.AlterUserScramCredentialsResponse)
        assert [one.error_code for one in response.results] == [0]

    def create_token(self, owner: str = "bob", renewer: str = "carol") -> None:
        response = self.ask(token_creation(owner, renewer), 3)
        assert isinstance(response, m.CreateDelegationTokenResponse)
        assert response.error_code == 0
        self.hmac = bytes(response.hmac)

    def produce_in_transaction(self) -> None:
        self.begin_transaction()
        self.ask(transactional_produce(self, 11), 11)


def sasl_session(principal: Principal, token_id: str = "") -> ClientSession:
    """A session that has authenticated by SASL."""
    session = ClientSession(
        listener="SASL",
        peer="client:1",
        local_host="127.0.0.1",
        local_port=9092,
        security_protocol="SASL_PLAINTEXT",
    )
    session.principal, session.token_id = principal, token_id
    session.is_authenticated = True
    return session


def token_creation(
    owner: str = "", *renewers: str, max_lifetime_ms: int = -1
) -> m.CreateDelegationTokenRequest:
    """Without an owner the token is the client's own."""
    request = m.CreateDelegationTokenRequest
    message = request(
        renewers=[request.CreatableRenewers(principal_type="User", principal_name=one) for one in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner:
        message.owner_principal_type, message.owner_principal_name = "User", owner
    return message


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
        resource_name_filter=None,
        host_filter=None,
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
        resource_name_filter=None,
        host_filter=None,
        pattern_type_filter=AclPattern.ANY,
        principal_filter="User:bob",
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    return m.DeleteAclsRequest(filters=[selected])


def quota_description(stage: Stage, version: int) -> m.DescribeClientQuotasRequest:
    request = m.DescribeClientQuotasRequest
    return request(components=[request.ComponentData(entity_type="user", match_type=0, match="bob")])


def quota_alteration(stage: Stage, version: int) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type="user", entity_name="bob")],
        ops=[request.OpData(key="producer_byte_rate", value=1024.0)],
    )
    return request(entries=[entry])


def scram_description(stage: Stage, version: int) -> m.DescribeUserScramCredentialsRequest:
    request = m.DescribeUserScramCredentialsRequest
    return request(users=[request.UserName(name="bob")])


def scram_upsertion(stage: Stage, version: int) -> m.AlterUserScramCredentialsRequest:
    request = m.AlterUserScramCredentialsRequest
    return request(
        upsertions=[
            request.ScramCredentialUpsertion(
                name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
        ]
    )


def scram_deletion(stage: Stage, version: int) -> m.AlterUserScramCredentialsRequest:
    request = m.AlterUserScramCredentialsRequest
    return request(deletions=[request.ScramCredentialDeletion(name="bob", mechanism=1)])


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


def partitions_of(request: Any, topic_class: Any, partition: object, **fields: Any) -> Any:
    return request(topics=[topic_class(name=TOPIC, partitions=[partition])], **fields)
