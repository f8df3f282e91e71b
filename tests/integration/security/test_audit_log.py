"""The audit log of a broker with users and ACLs (S11)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerProcess
from support.broker.secured import USERS, SaslWire, secured_broker

PATIENCE_S = 30.0
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def audited_broker(tmp_path: Path, events: str) -> BrokerProcess:
    return secured_broker(
        tmp_path / "data",
        f"authorizer.class.name={STANDARD}",
        "super.users=User:admin",
        f"flint.audit.log.file={tmp_path / 'audit.log'}",
        f"flint.audit.log.events={events}",
    )


def settings_of(broker: BrokerProcess, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def events_of(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]


def wait_for(tmp_path: Path, **fields: str) -> dict[str, Any]:
    """The first event that has these fields."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for event in events_of(tmp_path):
            if fields.items() <= event.items():
                return event
        assert time.monotonic() < deadline, (fields, events_of(tmp_path))
        time.sleep(0.05)


def produce(broker: BrokerProcess, user: str, topic: str) -> None:
    producer = Producer({**settings_of(broker, user), "message.timeout.ms": "5000"})
    producer.produce(topic, b"v")
    producer.flush(PATIENCE_S)


def test_denials_and_failed_authentications(tmp_path: Path) -> None:
    with audited_broker(tmp_path, "denials") as broker:
        admin = AdminClient(settings_of(broker, "admin"))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        produce(broker, "alice", "orders")
        with SaslWire(broker.address) as wire:
            assert wire.authenticate("alice", "not her password").error_code != 0
        denied = wait_for(tmp_path, event="authorization", principal="User:alice", resource="orders")
        failed = wait_for(tmp_path, event="authentication")
    assert denied["outcome"] == "denied"
    assert (denied["address"], denied["listener"]) == ("127.0.0.1", "SASL_PLAINTEXT")
    assert (denied["resource_type"], denied["reason"]) == ("TOPIC", "no ACL allows it")
    assert (failed["outcome"], failed["mechanism"], failed["principal"]) == ("denied", "PLAIN", None)
    assert "'alice'" in failed["reason"]
    text = (tmp_path / "audit.log").read_text()
    assert "not her password" not in text
    assert not [event for event in events_of(tmp_path) if event["outcome"] != "denied"]


def test_changes_are_described_without_values(tmp_path: Path) -> None:
    with audited_broker(tmp_path, "changes") as broker:
        admin = AdminClient(settings_of(broker, "admin"))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        entry = ConfigEntry(
            "listener.name.sasl_plaintext.ssl.key.password",
            "top-secret-value",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        with SaslWire(broker.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            wire.add_scram_user("carol", "carols-password", ScramMechanism.SHA_512)
        altered = wait_for(tmp_path, api="IncrementalAlterConfigs", event="change")
        user = wait_for(tmp_path, api="AlterUserScramCredentials", event="change")
        created = wait_for(tmp_path, api="CreateTopics", event="change")
        wait_for(tmp_path, event="authentication", outcome="allowed", principal="User:admin")
    assert created["resource"] == "orders"
    assert altered["detail"] == "SET listener.name.sasl_plaintext.ssl.key.password"
    assert (altered["resource_type"], altered["resource"], altered["outcome"]) == ("BROKER", "0", "allowed")
    assert (user["resource_type"], user["resource"], user["detail"]) == ("USER", "carol", "set SCRAM-SHA-512")
    text = (tmp_path / "audit.log").read_text()
    for secret in ("top-secret-value", "carols-password", "a salt of", *USERS.values()):
        assert secret not in text


def test_allowed_operations_name_the_rule(tmp_path: Path) -> None:
    with audited_broker(tmp_path, "all") as broker:
        admin = AdminClient(settings_of(broker, "admin"))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        acl = AclBinding(
            ResourceType.TOPIC,
            "ord",
            ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([acl])[acl].result(PATIENCE_S)
        produce(broker, "alice", "orders")
        allowed = wait_for(tmp_path, api="Produce", principal="User:alice", outcome="allowed")
        created = wait_for(tmp_path, api="CreateAcls", event="change")
        super_user = wait_for(tmp_path, api="CreateAcls", event="authorization")
    assert allowed["reason"] == "ACL: ALLOW WRITE to User:alice from * on TOPIC ord (prefixed)"
    assert created["detail"] == "ALLOW WRITE to User:alice from *, pattern PREFIXED"
    assert super_user["reason"] == "User:admin is a super user"
