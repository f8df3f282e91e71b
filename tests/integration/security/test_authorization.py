"""ACLs with real clients on a real broker: confluent-kafka, kafka-python, aiokafka and `flintmq acl` (F8, F9)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import KafkaAdminClient

from support.broker.broker_process import BrokerProcess
from support.broker.client_id_principals import AuthorizedBroker
from support.cli.command import Flintmq, Ran, run

PATIENCE_S = 30.0
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "authorizer"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with AuthorizedBroker(tmp_path_factory.mktemp("acls") / "data") as broker:
        yield broker


def command_for(broker: BrokerProcess) -> Flintmq:
    def flintmq(*args: str, stdin: bytes = b"", code: int = 0, env: object = None) -> Ran:
        return run(*args, stdin=stdin, code=code, env={"FLINTMQ_BOOTSTRAP_SERVERS": broker.address})

    return flintmq


@pytest.fixture
def flintmq(broker: BrokerProcess) -> Flintmq:
    return command_for(broker)


def produce(broker: BrokerProcess, client: str, topic: str, *, idempotent: bool = False) -> KafkaError | None:
    """The error of one record written with confluent-kafka."""
    outcome: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": broker.address, "client.id": client, "enable.idempotence": idempotent}
    )
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(PATIENCE_S)
    return outcome[0]


def consume(broker: BrokerProcess, client: str, topic: str, group: str) -> bytes | KafkaError | None:
    """The first value, or the error, that a member of the group gets."""
    settings = {
        "bootstrap.servers": broker.address,
        "client.id": client,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        found = consumer.poll(PATIENCE_S)
        assert found is not None
        return found.error() or found.value()


def test_a_producer_and_a_consumer_get_what_their_conveniences_allow(
    broker: BrokerProcess, flintmq: Flintmq
) -> None:
    flintmq("topic", "create", "orders")
    error = produce(broker, "alice", "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    flintmq("acl", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert produce(broker, "alice", "orders", idempotent=True) is None
    denied = consume(broker, "bob", "orders", "billing")
    assert isinstance(denied, KafkaError)
    assert denied.code() in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
    flintmq(
        "acl", "add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "billing"
    )  # fmt: skip
    assert consume(broker, "bob", "orders", "billing") == b"v"
    listed = flintmq("acl", "list", "--topic", "orders").out
    assert "User:alice" in listed
    assert "User:bob" in listed
    flintmq("acl", "delete", "--principal", "User:alice", "--yes")
    error = produce(broker, "alice", "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_open_producer_loses_its_right_at_once(broker: BrokerProcess, flintmq: Flintmq) -> None:
    flintmq("topic", "create", "live")
    flintmq("acl", "add", "--allow-principal", "User:carol", "--producer", "--topic", "live")

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.address, client_id="carol") as producer:
            await producer.send_and_wait("live", b"one")
            await asyncio.to_thread(flintmq, "acl", "delete", "--principal", "User:carol", "--yes")
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("live", b"two")

    asyncio.run(main())


def test_acls_of_confluent_kafka_s_admin_client(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "client.id": "admin"})
    binding = AclBinding(
        ResourceType.GROUP, "naïve 'group'", ResourcePatternType.PREFIXED, "User:dora", "10.0.0.1",
        AclOperation.READ, AclPermissionType.DENY,
    )  # fmt: skip
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:dora", None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    for created in admin.create_acls([binding]).values():
        created.result(PATIENCE_S)
    assert admin.describe_acls(anything).result(PATIENCE_S) == [binding]
    (deleted,) = admin.delete_acls([anything]).values()
    assert deleted.result(PATIENCE_S) == [binding]
    assert admin.describe_acls(anything).result(PATIENCE_S) == []
    stranger = AdminClient({"bootstrap.servers": broker.address, "client.id": "stranger"})
    # librdkafka passes over the error code of DescribeAcls, and returns no ACLs.
    assert stranger.describe_acls(anything).result(PATIENCE_S) == []
    (created,) = stranger.create_acls([binding]).values()
    with pytest.raises(KafkaException) as refused:
        created.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_kafka_python_sees_only_its_own_topics(broker: BrokerProcess, flintmq: Flintmq) -> None:
    for topic in ("erin-1", "erin-2", "secret"):
        flintmq("topic", "create", topic)
    flintmq(
        "acl", "add", "--allow-principal", "User:erin", "--operation", "Describe", "--topic", "erin-",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    with closing(KafkaAdminClient(bootstrap_servers=broker.address, client_id="erin")) as admin:
        assert sorted(admin.list_topics()) == ["erin-1", "erin-2"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("add", "--operation", "Read", "--topic", "t"), "--allow-principal"),
        (("add", "--allow-principal", "alice", "--topic", "t"), "User:alice"),
        (("add", "--allow-principal", "User:a"), "--topic"),
        (("add", "--allow-principal", "User:a", "--operation", "Reed", "--topic", "t"), "Read"),
        (("add", "--allow-principal", "User:a", "--operation", "Write", "--group", "g"), "Describe"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--group"),
        (("add", "--allow-principal", "User:a", "--producer", "--group", "g"), "--topic"),
        (("delete", "--yes"), "--all"),
        (("delete", "--all", "--topic", "t", "--yes"), "--all"),
    ],
)
def test_a_wrong_command_is_explained(flintmq: Flintmq, args: tuple[str, ...], words: str) -> None:
    assert words in flintmq("acl", *args, code=2).error


def test_acls_survive_a_restart_and_end_with_all(tmp_path: Path) -> None:
    with AuthorizedBroker(tmp_path / "data") as broker:
        command_for(broker)(
            "acl", "add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Read"
        )
        broker.stop()
        broker.start()
        flintmq = command_for(broker)
        assert "User:a" in flintmq("acl", "list", "--json").out
        flintmq("acl", "delete", "--all", "--yes")
        assert flintmq("acl", "list", "--json").out.strip() == "[]"


# ---- the ACL file


def until(condition: Callable[[], bool]) -> None:
    """Ask again until it is so: the broker looks at the file once a second."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_acl_file_is_read_at_the_start_and_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "acls.yaml"
    file.write_text("acls:\n- principal: User:alice\n  allow: [Describe]\n  topic: orders\n")
    with AuthorizedBroker(tmp_path / "data", f"flint.acl.file={file}") as broker:
        flintmq = command_for(broker)
        assert "User:alice" in flintmq("acl", "list").out
        refused = flintmq("acl", "add", "--allow-principal", "User:bob", "--topic", "t", code=1)
        assert str(file) in refused.error
        file.write_text("acls:\n- principal: User:bob\n  allow: [Read]\n  topic: orders\n")
        until(lambda: "User:bob" in flintmq("acl", "list").out)
        assert "User:alice" not in flintmq("acl", "list").out
        file.write_text("acls:\n- principal: User:bob\n  allow: [Reed]\n  topic: orders\n")
        until(lambda: f"{file}, line 3: there is no operation 'Reed'" in broker.errors)
        assert "User:bob" in flintmq("acl", "list").out, "a wrong file changes nothing"
        file.write_text("acls: []\n")
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: "no such ACLs" in flintmq("acl", "list").error)


# ---- an authorizer of one's own


def test_an_entry_point_decides(tmp_path: Path) -> None:
    installed = tmp_path / "flintmq_read_mostly-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: flintmq-read-mostly\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[flintmq.authorizers]\nread-mostly = read_mostly:create\n")
    tests = Path(__file__).resolve().parents[2]
    sources = tests.parent / "src"
    env = {
        "PYTHONPATH": f"{tests}:{sources}:{EXAMPLE}:{tmp_path}",
        "READ_MOSTLY_WRITERS": "User:flintmq;User:alice",
    }
    with AuthorizedBroker(tmp_path / "data", "authorizer.class.name=read-mostly", env=env) as broker:
        flintmq = command_for(broker)
        flintmq("topic", "create", "orders")
        assert produce(broker, "alice", "orders") is None
        error = produce(broker, "bob", "orders")
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert consume(broker, "bob", "orders", "any") == b"v"
        assert "has no ACLs" in flintmq("acl", "list", code=1).error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["authorizer.class.name=nowhere"], "flintmq.authorizers"),
        (["super.users=alice"], "User:alice"),
        (["authorizer.class.name=", "flint.acl.file=acls.yaml"], "authorizer.class.name"),
        (["flint.acl.file=/nowhere/acls.yaml"], "/nowhere/acls.yaml"),
    ],
)
def test_a_broker_that_cannot_authorize_does_not_start(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    standard = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    args = [word for one in (standard, *settings) for word in ("--set", one)]
    started = run("serve", "--data-dir", str(tmp_path / "data"), "--port", "0", *args, code=2)
    assert words in started.error
