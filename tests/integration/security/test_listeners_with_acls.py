"""One broker with PLAINTEXT, SSL and SASL_SSL listeners and ACLs: what a client may do depends on who it is, however
it has shown that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError

from support.broker.broker_process import BrokerProcess, clean_environment
from support.tls.certificates import CertificateFiles, authority

TIMEOUT_S = 60.0
PASSWORD = "a secret of tests"
MECHANISM = "SCRAM-SHA-512"
TOPIC, GROUP = "orders", "readers"


class SecuredBroker:
    """The broker, and what clients need to connect to each of its listeners."""

    def __init__(self, process: BrokerProcess, files: CertificateFiles) -> None:
        self.process = process
        self.files = files
        self.plaintext = {"bootstrap.servers": process.addresses[0], "log_level": 0}
        self.admin = AdminClient(self.by_password("admin"))

    def by_certificate(self, name: str) -> dict[str, Any]:
        certificate, key = self.files.client(authority().issue(name), name)
        return {
            "bootstrap.servers": self.process.addresses[1],
            "security.protocol": "SSL",
            "ssl.ca.location": self.files.ca,
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "log_level": 0,
        }

    def by_password(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.process.addresses[2],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.files.ca,
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }

    def python_by_password(self, name: str) -> dict[str, Any]:
        """The same for kafka-python."""
        return {
            "bootstrap_servers": self.process.addresses[2],
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.files.ca,
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": name,
            "sasl_plain_password": PASSWORD,
        }

    def allow(self, principal: str, *operations: AclOperation, topic: str = TOPIC) -> None:
        acls = [_acl(principal, ResourceType.TOPIC, topic, operation) for operation in operations]
        if AclOperation.READ in operations:
            acls.append(_acl(principal, ResourceType.GROUP, GROUP, AclOperation.READ))
        for created in self.admin.create_acls(acls).values():
            created.result(TIMEOUT_S)

    def revoke(self, principal: str) -> None:
        selected = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            principal,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for deleted in self.admin.delete_acls([selected]).values():
            deleted.result(TIMEOUT_S)


def _acl(principal: str, resource: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        resource,
        name,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("listeners")
    files, data = CertificateFiles(directory / "certificates"), directory / "data"
    for user in ("admin", "alice", "bob"):
        subprocess.run(
            [
                sys.executable, "-m", "flintmq", "user", "add", user, "--password-file", "-",
                "--mechanism", MECHANISM, "--data-dir", str(data),
            ],
            input=PASSWORD,
            text=True,
            check=True,
            env=clean_environment(),
        )  # fmt: skip
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        f"ssl.keystore.location={files.keystore}",
        f"ssl.truststore.location={files.ca}",
        "listener.name.ssl.ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        f"sasl.enabled.mechanisms={MECHANISM}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin",
        "flint.rest.port=-1",
    )
    with BrokerProcess(data, [word for text in settings for word in ("--set", text)]) as process:
        broker = SecuredBroker(process, files)
        broker.admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
        broker.allow("User:alice", AclOperation.READ, AclOperation.WRITE)
        yield broker


def produce(config: dict[str, Any], value: bytes) -> KafkaError | None:
    """Return the error of one record written with confluent-kafka."""
    outcome: list[KafkaError | None] = []
    producer = Producer(config)
    producer.produce(TOPIC, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return outcome[0]


def consume(config: dict[str, Any], value: bytes) -> KafkaError | None:
    """Read with confluent-kafka until the value has come; return the error if there is one."""
    consumer = Consumer(config | {"group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        while True:
            found = consumer.poll(TIMEOUT_S)
            assert found is not None, "nothing came"
            if found.error() is not None:
                return found.error()
            if found.value() == value:
                return None
    finally:
        consumer.close()


def code(error: KafkaError | None) -> int:
    return 0 if error is None else error.code()


DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_confluent_kafka_by_password(broker: SecuredBroker) -> None:
    assert produce(broker.by_password("alice"), b"confluent") is None
    assert consume(broker.by_password("alice"), b"confluent") is None
    assert code(produce(broker.by_password("bob"), b"no")) == DENIED
    assert code(consume(broker.by_password("bob"), b"no")) in (DENIED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert TOPIC in AdminClient(broker.by_password("alice")).list_topics(timeout=TIMEOUT_S).topics
    assert not AdminClient(broker.by_password("bob")).list_topics(timeout=TIMEOUT_S).topics


def test_kafka_python_by_password(broker: SecuredBroker) -> None:
    producer = kafka.KafkaProducer(**broker.python_by_password("alice"), enable_idempotence=False)
    producer.send(TOPIC, b"kafka-python").get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        TOPIC,
        **broker.python_by_password("alice"),
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    assert any(record.value == b"kafka-python" for record in consumer)
    consumer.close()
    stranger = kafka.KafkaProducer(**broker.python_by_password("bob"), enable_idempotence=False)
    with pytest.raises(TopicAuthorizationFailedError):
        stranger.send(TOPIC, b"no").get(TIMEOUT_S)
    stranger.close()


def test_a_certificate_is_who_the_client_is(broker: SecuredBroker) -> None:
    assert code(produce(broker.by_certificate("carol"), b"no")) == DENIED
    broker.allow("User:carol", AclOperation.READ, AclOperation.WRITE)
    assert produce(broker.by_certificate("carol"), b"certificate") is None
    assert consume(broker.by_certificate("carol"), b"certificate") is None
    assert code(produce(broker.by_certificate("dave"), b"no")) == DENIED


def test_a_name_is_one_principal_on_every_listener(broker: SecuredBroker) -> None:
    assert produce(broker.by_certificate("alice"), b"alice by certificate") is None
    assert consume(broker.by_password("alice"), b"alice by certificate") is None


def test_a_client_without_authentication_is_anonymous(broker: SecuredBroker) -> None:
    assert code(produce(broker.plaintext, b"no")) == DENIED
    assert produce(broker.by_password("alice"), b"for all") is None
    broker.allow("User:ANONYMOUS", AclOperation.READ)
    try:
        assert consume(broker.plaintext, b"for all") is None
        assert code(produce(broker.plaintext, b"no")) == DENIED
    finally:
        broker.revoke("User:ANONYMOUS")


def test_a_right_that_is_taken_away_ends_on_an_open_connection(broker: SecuredBroker) -> None:
    broker.allow("User:bob", AclOperation.WRITE)
    outcome: list[KafkaError | None] = []
    producer = Producer(broker.by_password("bob"))
    producer.produce(TOPIC, b"allowed", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    broker.revoke("User:bob")
    producer.produce(TOPIC, b"denied", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [code(error) for error in outcome] == [0, DENIED]


def test_credentials_are_for_those_who_may_alter_the_cluster(broker: SecuredBroker) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("erin", info, PASSWORD.encode())
    alice, admin = AdminClient(broker.by_password("alice")), broker.admin
    with pytest.raises(KafkaException) as denied:
        alice.alter_user_scram_credentials([upsertion])["erin"].result(TIMEOUT_S)
    assert code(denied.value.args[0]) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    # Not confluent-kafka 2.16: librdkafka crashes when it frees an error of the whole response.
    python_admin = kafka.KafkaAdminClient(**broker.python_by_password("alice"))
    with pytest.raises(ClusterAuthorizationFailedError):
        python_admin.describe_user_scram_credentials(["alice"])
    python_admin.close()
    admin.alter_user_scram_credentials([upsertion])["erin"].result(TIMEOUT_S)
    assert code(produce(broker.by_password("erin"), b"no")) == DENIED
