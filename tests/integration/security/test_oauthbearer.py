"""OAUTHBEARER with librdkafka: tokens that are signed, renewed before they end, and refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from support.broker.broker_process import BrokerProcess
from support.broker.secured import SaslWire
from support.security.tokens import key_set, signed

TIMEOUT_S = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    keys = tmp_path / "issuer keys.json"
    keys.write_text(key_set())
    settings = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.sasl_plaintext.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        "listener.name.sasl_plaintext.sasl.oauthbearer.expected.audience=flintmq",
        "flint.rest.port=-1",
    )
    return BrokerProcess(tmp_path / "data", [word for text in settings for word in ("--set", text)])


def token(lifetime_s: float = 600, audience: str = "flintmq") -> str:
    return signed({"sub": "alice", "aud": audience, "exp": time.time() + lifetime_s, "iat": time.time()})


def producer(broker: BrokerProcess, errors: list[Any], **claims: Any) -> confluent_kafka.Producer:
    lifetime_s = claims.get("lifetime_s", 600)
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(**claims), time.time() + lifetime_s),
            "error_cb": errors.append,
            "log_level": 0,
        }
    )


def test_a_client_writes_and_renews_its_token(broker: BrokerProcess) -> None:
    """The token's end is the session's: the client authenticates again in time (KIP-368)."""
    errors: list[Any] = []
    delivered: list[Any] = []
    with broker:
        client = producer(broker, errors, lifetime_s=3)
        deadline = time.monotonic() + 7
        while time.monotonic() < deadline:
            client.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
            assert client.flush(TIMEOUT_S) == 0
            client.poll(0.2)
    assert not any(delivered)
    assert len(delivered) > 10


def test_a_token_for_somebody_else_is_refused(broker: BrokerProcess) -> None:
    errors: list[Any] = []
    with broker:
        client = producer(broker, errors, audience="elsewhere")
        deadline = time.monotonic() + TIMEOUT_S
        while not errors and time.monotonic() < deadline:
            client.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


def test_the_session_ends_with_the_token(broker: BrokerProcess) -> None:
    with broker, SaslWire(broker.address) as wire:
        wire.handshake("OAUTHBEARER")
        response = wire.token(f"n,,\x01auth=Bearer {token(lifetime_s=60)}\x01\x01".encode())
        assert response.error_code == 0
        assert 50_000 < response.session_lifetime_ms <= 60_000
