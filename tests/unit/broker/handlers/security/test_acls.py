"""CreateAcls, DescribeAcls, DeleteAcls: Kafka's checks and filters; durable; in force on open connections (F8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flintmq.broker.request import ClientSession
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)
from flintmq.security.authorization.model import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    operation_bits,
)
from flintmq.security.principal import Principal
from support.broker.single_broker import SingleBroker
from support.wire.transactional import TransactionalClient, find_coordinator
from support.wire.wire import batch_of, fetch_request

StartBroker = Callable[..., SingleBroker]

ADMIN, ALICE = Principal("User", "admin"), Principal("User", "alice")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin; User:CN=ops,O=example",
}
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
VERSIONS = [1, 2, 3]
BATCH = batch_of(b"secret", timestamp=1_700_000_000_000)


@pytest.fixture
def broker(start_broker: StartBroker) -> SingleBroker:
    broker = start_broker(SETTINGS)
    broker.principal = ADMIN
    broker.create("orders")
    return broker


def acl(
    name: str,
    operation: int = AclOperation.READ,
    *,
    resource: int = AclResource.TOPIC,
    pattern: int = AclPattern.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: int = AclPermission.ALLOW,
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(broker: SingleBroker, *acls: CreateAclsRequest.AclCreation, version: int = 3) -> list[ErrorCode]:
    response = broker.ask(CreateAclsRequest(creations=list(acls)), CreateAclsResponse, version)
    return [ErrorCode(one.error_code) for one in response.results]


def described(broker: SingleBroker, selected: AclFilter, version: int = 3) -> set[AclBinding]:
    request = DescribeAclsRequest(
        resource_type_filter=selected.resource,
        resource_name_filter=selected.name,
        pattern_type_filter=selected.pattern,
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=selected.operation,
        permission_type=selected.permission,
    )
    response = broker.ask(request, DescribeAclsResponse, version)
    assert response.error_code == NONE
    return {
        AclBinding(
            AclResource(found.resource_type),
            found.resource_name,
            AclPattern(found.pattern_type),
            one.principal,
            one.host,
            AclOperation(one.operation),
            AclPermission(one.permission_type),
        )
        for found in response.resources
        for one in found.acls
    }


def delete(broker: SingleBroker, *selected: AclFilter, version: int = 3) -> list[tuple[ErrorCode, set[str]]]:
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=one.resource,
                resource_name_filter=one.name,
                pattern_type_filter=one.pattern,
                principal_filter=one.principal,
                host_filter=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in selected
        ]
    )
    response = broker.ask(request, DeleteAclsResponse, version)
    return [
        (ErrorCode(one.error_code), {acl.resource_name for acl in one.matching_acls})
        for one in response.filter_results
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_acls_are_created_described_and_deleted(broker: SingleBroker, version: int) -> None:
    names = ["orders", 'it\'s "quoted"', "*", "naïve-日本", "a*b"]
    created = create(
        broker,
        *(acl(name, resource=AclResource.GROUP) for name in names),
        acl("log", pattern=AclPattern.PREFIXED),
        version=version,
    )
    assert created == [NONE] * 6
    assert {one.name for one in described(broker, AclFilter(), version)} == {*names, "log"}
    matching = AclFilter(AclResource.TOPIC, "logs", AclPattern.MATCH)
    assert {one.name for one in described(broker, matching, version)} == {"log"}
    assert delete(broker, matching, AclFilter(name="nothing"), version=version) == [
        (NONE, {"log"}),
        (NONE, set()),
    ]
    assert delete(broker, AclFilter(resource=AclResource.GROUP), version=version) == [(NONE, set(names))]
    assert described(broker, AclFilter(), version) == set()


def test_an_acl_that_exists_is_accepted_once_more_and_stays_one(broker: SingleBroker) -> None:
    assert create(broker, acl("orders"), acl("orders")) == [NONE, NONE]
    revision = broker.services.metadata.image.revision
    assert create(broker, acl("orders")) == [NONE]
    assert broker.services.metadata.image.revision == revision
    assert len(described(broker, AclFilter())) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        acl(""),
        acl("other", resource=AclResource.CLUSTER),
        acl("orders", resource=AclResource.ANY),
        acl("orders", resource=0),
        acl("orders", resource=99),
        acl("orders", pattern=AclPattern.MATCH),
        acl("orders", pattern=AclPattern.ANY),
        acl("orders", operation=AclOperation.ANY),
        acl("orders", operation=0),
        acl("orders", operation=100),
        acl("orders", permission=AclPermission.ANY),
        acl("orders", principal="alice"),
    ],
)
def test_an_acl_that_makes_no_sense_is_rejected_and_the_others_are_created(
    broker: SingleBroker, wrong: CreateAclsRequest.AclCreation
) -> None:
    assert create(broker, wrong, acl("orders")) == [INVALID, NONE]
    assert {one.name for one in described(broker, AclFilter())} == {"orders"}


def test_a_filter_with_unknown_elements_is_rejected(broker: SingleBroker) -> None:
    request = DescribeAclsRequest(resource_type_filter=0, operation=1, permission_type=1)
    assert broker.ask(request, DescribeAclsResponse, 3).error_code == INVALID
    create(broker, acl("orders"))
    bad = DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=77, permission_type=1)
    response = broker.ask(DeleteAclsRequest(filters=[bad]), DeleteAclsResponse, 3)
    assert response.filter_results[0].error_code == INVALID
    assert len(described(broker, AclFilter())) == 1


def test_without_an_authorizer_there_are_no_acls(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert create(broker, acl("orders")) == [ErrorCode.SECURITY_DISABLED]
    assert delete(broker, AclFilter()) == [(ErrorCode.SECURITY_DISABLED, set())]
    request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
    response = broker.ask(request, DescribeAclsResponse, 3)
    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name" in (response.error_message or "")


def test_ten_thousand_acls_survive_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(SETTINGS)
    broker.principal = ADMIN
    assert set(create(broker, *(acl(f"topic-{number}") for number in range(10_000)))) == {NONE}
    assert create(broker, *(acl(f"more-{number}") for number in range(10_001)))[0] is INVALID
    broker.close()
    broker.close = lambda: None  # type: ignore[method-assign]
    again = start_broker(SETTINGS, broker.disk)
    again.principal = ADMIN
    assert len(described(again, AclFilter())) == 10_000
    assert delete(again, AclFilter(name="topic-77"))[0] == (NONE, {"topic-77"})
    (deleted,) = delete(again, AclFilter())
    assert len(deleted[1]) == 9_999
    assert described(again, AclFilter()) == set()


# ---- in force on connections that are open


def session_of(principal: Principal) -> ClientSession:
    session = ClientSession(listener="PLAINTEXT", peer="client:1", local_host="127.0.0.1", local_port=9092)
    session.principal = principal
    return session


def topics_seen(broker: SingleBroker, session: ClientSession) -> set[str | None]:
    exchange = broker.exchange(MetadataRequest(topics=None), MetadataResponse, 9, session=session)
    return {topic.name for topic in broker.loop.run_until_complete(exchange).topics}


def test_acls_are_in_force_at_once_on_a_connection_that_is_open(broker: SingleBroker) -> None:
    session = session_of(ALICE)
    assert topics_seen(broker, session) == set()
    create(broker, acl("orders", AclOperation.DESCRIBE))
    assert topics_seen(broker, session) == {"orders"}
    create(broker, acl("*", AclOperation.ALL, permission=AclPermission.DENY, principal="User:*"))
    assert topics_seen(broker, session) == set()


def test_a_session_that_becomes_another_principal_forgets_its_rights(broker: SingleBroker) -> None:
    session = session_of(ADMIN)
    assert topics_seen(broker, session) == {"orders"}
    session.principal = ALICE
    assert topics_seen(broker, session) == set()


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_acl_that_is_removed_during_a_long_poll_takes_effect(broker: SingleBroker, version: int) -> None:
    create(broker, acl("orders"))
    topic = broker.topic_id("orders") if version >= 13 else "orders"
    request = fetch_request(topic, {0: 0}, max_wait_ms=60_000)

    async def poll() -> FetchResponse:
        polling = asyncio.ensure_future(broker.exchange(request, FetchResponse, version, principal=ALICE))
        await asyncio.sleep(1)
        assert not polling.done()
        assert broker.services.authorizer is not None
        assert broker.services.authorizer.acls is not None
        await broker.services.authorizer.acls.delete(list(broker.services.authorizer.acls.acls(AclFilter())))
        partition = broker.partition("orders")
        batch = memoryview(bytearray(BATCH))
        now_ms = broker.loop.clock.now_ms()
        partition.append(batch, partition.check(batch, now_ms), now_ms)
        return await polling

    response = broker.loop.run_until_complete(poll())
    (found,) = response.responses[0].partitions
    assert (found.error_code, found.records or b"") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_an_acl_that_is_removed_during_a_transaction_takes_effect(broker: SingleBroker) -> None:
    """Produce, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn fail from then on."""
    find_coordinator(broker)
    find_coordinator(broker, key_type=0, key="g")
    create(
        broker,
        acl("orders", AclOperation.WRITE),
        acl("orders", AclOperation.READ),
        acl("g", AclOperation.READ, resource=AclResource.GROUP),
        acl("tx", AclOperation.WRITE, resource=AclResource.TRANSACTIONAL_ID),
    )
    broker.principal = ALICE
    client = TransactionalClient(broker)
    assert client.init() is NONE
    assert client.produce("orders", b"one") is NONE
    broker.principal = ADMIN
    delete(broker, AclFilter(resource=AclResource.TRANSACTIONAL_ID))
    end_offset = broker.partition("orders").log.end_offset
    broker.principal = ALICE
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.produce("orders", b"two") is denied
    assert client.produce("orders", b"two", version=11) is denied
    assert set(client.add(("orders", 0)).values()) == {denied}
    assert client.add_offsets("g") is denied
    assert set(client.commit_offsets("g", {("orders", 0): 1}).values()) == {denied}
    assert client.end(committed=True) is denied
    assert client.init() is denied
    assert broker.partition("orders").log.end_offset == end_offset
    broker.principal = ADMIN
    assert client.state == "Ongoing"


# ---- what is hidden


def test_an_unknown_topic_and_a_hidden_one_look_the_same(broker: SingleBroker) -> None:
    names = ["orders", "nowhere"]
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    response = broker.ask(request, MetadataResponse, 9, principal=ALICE)
    hidden = [
        (topic.error_code, topic.topic_id, topic.is_internal, topic.partitions) for topic in response.topics
    ]
    assert hidden[0] == hidden[1] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, bytes(16), False, [])
    assert "nowhere" not in broker.services.metadata.image.topics


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_those_of_the_principal(broker: SingleBroker, version: int) -> None:
    create(
        broker,
        acl("orders", AclOperation.WRITE),
        acl("orders", AclOperation.ALTER_CONFIGS),
        acl("orders", AclOperation.DELETE, permission=AclPermission.DENY),
        acl("kafka-cluster", AclOperation.DESCRIBE, resource=AclResource.CLUSTER),
    )
    request = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=version <= 10,
    )
    response = broker.ask(request, MetadataResponse, version, principal=ALICE)
    o = AclOperation
    assert response.topics[0].topic_authorized_operations == operation_bits(
        (o.WRITE, o.DESCRIBE, o.ALTER_CONFIGS, o.DESCRIBE_CONFIGS)
    )
    if version <= 10:
        assert response.cluster_authorized_operations == operation_bits((o.DESCRIBE,))


def test_the_cluster_s_operations_are_hidden_from_those_who_may_not_describe_it(broker: SingleBroker) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = broker.ask(request, DescribeClusterResponse, 1, principal=ALICE)
    assert (response.error_code, response.cluster_authorized_operations) == (NONE, 0)
    assert response.brokers


def test_everything_is_allowed_where_no_acl_is_found_if_so_configured(start_broker: StartBroker) -> None:
    broker = start_broker({**SETTINGS, "allow.everyone.if.no.acl.found": "true"})
    broker.principal = ADMIN
    broker.create("orders")
    broker.create("other")
    assert topics_seen(broker, session_of(ALICE)) >= {"orders", "other"}
    create(broker, acl("orders", principal="User:bob"))
    assert topics_seen(broker, session_of(ALICE)) == {"other"}


def test_denials_are_counted_by_operation(broker: SingleBroker) -> None:
    broker.ask(fetch_request("orders", {0: 0}), FetchResponse, 12, principal=ALICE)
    topics_seen(broker, session_of(ALICE))
    assert broker.services.counters.denials == {"READ": 1}


def test_a_client_that_names_itself_a_replica_needs_cluster_action(broker: SingleBroker) -> None:
    create(broker, acl("orders"))
    request: FetchRequest = fetch_request("orders", {0: 0})
    request.replica_id = 1
    response = broker.ask(request, FetchResponse, 12, principal=ALICE)
    assert response.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    create(broker, acl("kafka-cluster", AclOperation.CLUSTER_ACTION, resource=AclResource.CLUSTER))
    response = broker.ask(request, FetchResponse, 12, principal=ALICE)
    # It is allowed now, and still no replica of a partition that has only one.
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
