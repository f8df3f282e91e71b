"""SASL_SSL: passwords inside TLS, with a real client; a setting that cannot be used is refused while running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.broker.broker_process import BrokerProcess, clean_environment
from support.broker.secured import MECHANISMS, USERS, jaas

TIMEOUT_S = 30.0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_over_sasl_ssl(tmp_path: Path, mechanism: str) -> None:
    certs, data = tmp_path / "certs", tmp_path / "data"
    password = USERS["alice"]
    for args in (
        ("cert", "dev", str(certs)),
        ("user", "add", "alice", "--password-file", "-", "--data-dir", str(data),
         "--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512"),
    ):  # fmt: skip
        subprocess.run(
            [sys.executable, "-m", "flintmq", *args],
            input=password,
            text=True,
            check=True,
            env=clean_environment(),
        )
    settings = (
        "listeners=SASL_SSL://localhost:0",
        f"ssl.keystore.location={certs}/server.pem",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={jaas(USERS)}",
        "connections.max.reauth.ms=2000",
        "flint.rest.port=-1",
    )
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": f"{certs}/ca.pem",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
    }
    with BrokerProcess(data, [word for text in settings for word in ("--set", text)]) as broker:
        config["bootstrap.servers"] = f"localhost:{broker.port}"
        producer = confluent_kafka.Producer(config)
        for _ in range(10):
            producer.produce("t", b"x" * 100_000)
            assert producer.flush(TIMEOUT_S) == 0
            producer.poll(0.3)
        name = "listener.name.sasl_ssl.sasl.enabled.mechanisms"
        entry = ConfigEntry(name, "GSSAPI", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        admin = AdminClient(config)
        with pytest.raises(confluent_kafka.KafkaException, match="GSSAPI"):
            admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        assert admin.list_topics(timeout=TIMEOUT_S).topics
