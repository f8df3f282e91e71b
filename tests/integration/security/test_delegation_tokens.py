"""Delegation tokens with real clients: Kafka's own tools, this project's command, and connections step by step."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from support.broker.broker_process import BrokerProcess
from support.broker.secured import USERS, SaslWire, secured_broker
from support.clients.java_program import java_command
from support.security.commands import flintmq

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TIMEOUT_S = 90.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = (
        "delegation.token.secret.key=a key for tests",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin",
    )
    with secured_broker(tmp_path / "data", *settings) as started:
        yield started


def properties(path: Path, module: str, mechanism: str, user: str, password: str, more: str = "") -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}"{more};\n'
    )
    return str(path)


def login(user: str) -> dict[str, str]:
    return {
        "FLINTMQ_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "FLINTMQ_SASL_MECHANISM": "PLAIN",
        "FLINTMQ_SASL_USERNAME": user,
        "FLINTMQ_SASL_PASSWORD": USERS[user],
    }


def create(wire: SaslWire) -> CreateDelegationTokenResponse:
    response = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def expire(wire: SaslWire, token: CreateDelegationTokenResponse, period_ms: int) -> None:
    request = ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=period_ms)
    response = wire.ask(request, 2)
    assert isinstance(response, ExpireDelegationTokenResponse)
    assert response.error_code == 0


def password(token: CreateDelegationTokenResponse) -> str:
    return base64.b64encode(bytes(token.hmac)).decode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_authenticates_its_owner_and_leads_to_no_other_token(
    broker: BrokerProcess, mechanism: str
) -> None:
    with SaslWire(broker.address) as owner, SaslWire(broker.address) as client:
        owner.authenticate("admin", USERS["admin"])
        token = create(owner)
        response = client.authenticate(token.token_id, password(token), mechanism, is_delegation_token=True)
        assert response.error_code == 0
        assert 86_000_000 < response.session_lifetime_ms <= 86_400_000
        # The owner is a super user: a topic can be created.
        flintmq("topic", "create", "t", "-b", broker.address, env=login("admin"))
        assert [one.name for one in client.metadata().topics] == ["t"]
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_unknown_and_misused_tokens_fail_alike(broker: BrokerProcess, mechanism: str) -> None:
    with SaslWire(broker.address) as owner:
        owner.authenticate("alice", USERS["alice"])
        token, other = create(owner), create(owner)
    attempts = [
        (token.token_id, password(other), True),
        (token.token_id, password(token), False),
        ("no-such-token", password(token), True),
        ("alice", USERS["alice"], True),
    ]
    responses = set()
    for name, secret, is_token in attempts:
        with SaslWire(broker.address) as wire:
            response = wire.authenticate(name, secret, mechanism, is_delegation_token=is_token)
            responses.add((response.error_code, response.error_message, bytes(response.auth_bytes)))
            assert wire.is_closed_by_the_broker()
    assert {one[0] for one in responses} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert len(responses) == 1


@pytest.mark.parametrize("period_ms", [-1, 200])
def test_a_session_ends_with_its_token(broker: BrokerProcess, period_ms: int) -> None:
    with SaslWire(broker.address) as owner, SaslWire(broker.address) as client:
        owner.authenticate("alice", USERS["alice"])
        token = create(owner)
        client.authenticate(token.token_id, password(token), "SCRAM-SHA-512", is_delegation_token=True)
        assert client.metadata().brokers
        expire(owner, token, period_ms)
        time.sleep(max(0, period_ms) / 1000 + 0.05)
        with pytest.raises((ConnectionError, EOFError, AssertionError)):
            client.metadata()
        assert owner.metadata().brokers


def test_tokens_survive_a_kill(tmp_path: Path) -> None:
    broker = secured_broker(tmp_path / "data", "delegation.token.secret.key=a key for tests")
    with broker:
        with SaslWire(broker.address) as owner:
            owner.authenticate("alice", USERS["alice"])
            token = create(owner)
        broker.kill()
        broker.start()
        with SaslWire(broker.address) as client:
            response = client.authenticate(
                token.token_id, password(token), "SCRAM-SHA-256", is_delegation_token=True
            )
            assert response.error_code == 0


def test_the_command(broker: BrokerProcess) -> None:
    at, alice, admin = ("-b", broker.address), login("alice"), login("admin")
    made = flintmq(
        "token", "create", "--renewer", "User:admin", "--max-lifetime", "2d", "--json", *at, env=alice
    )
    token = json.loads(made.stdout)
    assert (token["owner"], token["renewers"]) == ("User:alice", ["User:admin"])
    assert token["max_ms"] - token["issued_ms"] == 2 * 86_400_000
    listed = flintmq("token", "list", *at, env=alice).stdout
    assert token["id"] in listed
    assert token["hmac"] not in listed
    [described] = json.loads(flintmq("token", "list", "--json", "--with-hmac", *at, env=admin).stdout)
    assert described == token
    assert "expires" in flintmq("token", "renew", token["id"], "--for", "1h", *at, env=admin).stdout
    refused = flintmq("token", "create", "--owner", "User:bob", *at, env=alice, fails=True)
    assert "CreateTokens" in refused.stderr
    flintmq("acl", "add", "--allow-principal", "User:alice", "--operation", "CreateTokens",
            "--user-principal", "User:bob", *at, env=admin)  # fmt: skip
    assert "User:bob" in flintmq("token", "create", "--owner", "User:bob", *at, env=alice).stdout
    assert "Removed" in flintmq("token", "expire", token["id"], *at, env=alice).stdout
    gone = flintmq("token", "expire", token["id"], *at, env=alice, fails=True)
    assert "flintmq token list" in gone.stderr


# ---- Kafka's own tools


def java(name: str, folder: Path, *arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        java_command(name, arguments, folder, jars=["kafka-tools"]),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_kafka_s_tools_create_use_renew_and_expire_tokens(broker: BrokerProcess, tmp_path: Path) -> None:
    admin = properties(tmp_path / "admin", PLAIN_MODULE, "PLAIN", "admin", USERS["admin"])
    at = ("--bootstrap-server", broker.address, "--command-config", admin)
    created = java(TOOL, tmp_path, "--create", "--max-life-time-period", "-1", "--renewer-principal",
                   "User:alice", *at)  # fmt: skip
    found = re.search(r"^(\S{22})\s+(\S{88})\s+User:admin", created, re.MULTILINE)
    assert found is not None, created
    token_id, made = found.groups()
    with_token = properties(
        tmp_path / "token", SCRAM_MODULE, "SCRAM-SHA-512", token_id, made, ' tokenauth="true"'
    )
    topic_tool = "org.apache.kafka.tools.TopicCommand"
    as_token = ("--bootstrap-server", broker.address, "--command-config", with_token)
    java(topic_tool, tmp_path, "--create", "--topic", "by-token", *as_token)
    assert "by-token" in java(topic_tool, tmp_path, "--list", *as_token)
    assert "Completed renew" in java(
        TOOL, tmp_path, "--renew", "--renew-time-period", "-1", "--hmac", made, *at
    )
    assert token_id in java(TOOL, tmp_path, "--describe", "--owner-principal", "User:admin", *at)
    refused = java(TOOL, tmp_path, "--create", "--max-life-time-period", "-1", *as_token, fails=True)
    assert "not allowed" in refused
    assert "Completed expire" in java(
        TOOL, tmp_path, "--expire", "--expiry-time-period", "-1", "--hmac", made, *at
    )
    assert token_id not in java(TOOL, tmp_path, "--describe", *at)
    java(topic_tool, tmp_path, "--list", *as_token, fails=True)
