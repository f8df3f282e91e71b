"""Listeners of a running broker, changed over the wire: what is advertised, what fails, what a restart finds."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.broker.broker_process import BrokerProcess, StartBroker, closed_port
from support.security.commands import flintmq
from support.tls.certificates import CertificateFiles

TIMEOUT_S = 30


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def alter(address: str, settings: Mapping[str, str], *, validate_only: bool = False) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    # Its futures end with a client that is not referred to any more.
    client = admin(address)
    futures = client.incremental_alter_configs(
        [resource], validate_only=validate_only, request_timeout=TIMEOUT_S
    )
    (future,) = futures.values()
    future.result(TIMEOUT_S)


def advertised(address: str) -> set[str]:
    client = admin(address)
    brokers = client.list_topics(timeout=TIMEOUT_S).brokers.values()
    cluster = client.describe_cluster(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert [(node.host, node.port) for node in cluster.nodes] == [(one.host, one.port) for one in brokers]
    return {f"{one.host}:{one.port}" for one in brokers}


def is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S):
            return True
    except ConnectionRefusedError:
        return False


def test_what_is_advertised_changes_with_the_listeners(start_broker: StartBroker) -> None:
    broker = start_broker()
    port = closed_port()
    alter(
        broker.address,
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},OTHER://127.0.0.1:{port}",
            "listener.security.protocol.map": "OTHER:PLAINTEXT",
            "advertised.listeners": f"OTHER://localhost:{port}",
        },
    )
    assert advertised(broker.address) == {broker.address}
    assert advertised(f"127.0.0.1:{port}") == {f"localhost:{port}"}

    # By the listener that goes: the client has its response before the connection is closed.
    alter(broker.address, {"listeners": f"OTHER://127.0.0.1:{port}"})
    assert not is_open(broker.port)
    alter(f"127.0.0.1:{port}", {"advertised.listeners": f"OTHER://127.0.0.1:{port}"})
    assert advertised(f"127.0.0.1:{port}") == {f"127.0.0.1:{port}"}


def test_a_change_that_fails_is_neither_stored_nor_in_force(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    first = f"PLAINTEXT://127.0.0.1:{broker.port}"
    port = closed_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
        failing: list[tuple[dict[str, str], str]] = [
            (
                {"listeners": f"{first},PLAINTEXT://127.0.0.1:{port},{taken}"},
                "another process listens on this port",
            ),
            (
                {
                    "listeners": f"{first},SASL_SSL://127.0.0.1:{port}",
                    "listener.name.sasl_ssl.ssl.keystore.location": str(tmp_path / "missing.pem"),
                },
                "missing.pem",
            ),
            (
                {
                    "listeners": f"{first},SASL_PLAINTEXT://127.0.0.1:{port}",
                    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
                },
                "no users for PLAIN",
            ),
        ]
        for settings, words in failing:
            with pytest.raises(KafkaException, match=words):
                alter(broker.address, settings)
            assert not is_open(port)
    alter(broker.address, {"listeners": f"{first},PLAINTEXT://127.0.0.1:{port}"}, validate_only=True)
    assert not is_open(port)
    client = admin(broker.address)
    described = client.describe_configs([ConfigResource(ResourceType.BROKER, "0")])
    (entries,) = (future.result(TIMEOUT_S) for future in described.values())
    assert entries["listeners"].source == 4
    assert not any("sasl_ssl" in name for name in entries)


def test_a_restart_finds_what_was_changed_and_a_reset_undoes_it(tmp_path: Path) -> None:
    first, second = closed_port(), closed_port()
    broker = BrokerProcess(
        tmp_path / "data",
        ["--set", f"listeners=PLAINTEXT://127.0.0.1:{first}", "--set", "flint.rest.port=-1"],
    )
    with broker:
        changed = f"listeners=PLAINTEXT://127.0.0.1:{second}"
        flintmq("config", "--alter", changed, "--bootstrap-server", f"127.0.0.1:{first}", "--validate-only")
        assert is_open(first)
        flintmq("config", "--alter", changed, "--bootstrap-server", f"127.0.0.1:{first}")
        assert (is_open(first), is_open(second)) == (False, True)
        assert f"listening on PLAINTEXT://127.0.0.1:{second} as well" in broker.errors

        broker.kill()
        broker.start()
        assert broker.addresses == [f"127.0.0.1:{second}"]
        assert f"{changed} is in force" in broker.errors

        flintmq("config", "--reset", "listeners", "--bootstrap-server", f"127.0.0.1:{second}")
        assert (is_open(first), is_open(second)) == (True, False)


def test_a_broker_that_cannot_have_its_listeners_does_not_open_those_of_the_start(tmp_path: Path) -> None:
    """Those may be open to everyone. The error names the command that removes the settings."""
    files = CertificateFiles(tmp_path / "certificates")
    first, second = closed_port(), closed_port()
    data_dir = tmp_path / "data"
    broker = BrokerProcess(
        data_dir, ["--set", f"listeners=PLAINTEXT://127.0.0.1:{first}", "--set", "flint.rest.port=-1"]
    )
    with broker:
        flintmq(
            *("config", "--bootstrap-server", f"127.0.0.1:{first}"),
            *("--alter", f"listeners=SSL://127.0.0.1:{second}"),
            *("--alter", f"listener.name.ssl.ssl.keystore.location={files.keystore}"),
        )
        # The signal reads certificates again, although the broker was started without any.
        broker.process.send_signal(signal.SIGHUP)
        assert is_open(second)
        assert broker.stop() == 0
        Path(files.keystore).unlink()
        with pytest.raises(AssertionError, match="before it was ready") as failed:
            broker.start()
        command = "flintmq config --reset listeners --offline --data-dir"
        assert f"{command} {data_dir}" in str(failed.value)
        flintmq("config", "--reset", "listeners", "--offline", "--data-dir", str(data_dir))
        broker.start()
        assert broker.addresses == [f"127.0.0.1:{first}"]
