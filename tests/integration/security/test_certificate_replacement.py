"""Certificates are replaced while clients write, without a connection lost: a changed file, SIGHUP, AlterConfigs."""

from __future__ import annotations

import os
import signal
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.broker.broker_process import BrokerProcess, StartBroker
from support.tls.certificates import CertificateFiles, server_certificate

TIMEOUT_S = 60.0
OTHER = server_certificate("other")
SETTING = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "certificates")


def options(settings: dict[str, str]) -> list[str]:
    return [part for name, text in settings.items() for part in ("--set", f"{name}={text}")]


class Traffic:
    """A producer that must never lose its connection."""

    def __init__(self, broker: BrokerProcess, files: CertificateFiles) -> None:
        self.config: dict[str, Any] = {
            "bootstrap.servers": broker.address,
            "security.protocol": "SSL",
            "ssl.ca.location": files.ca,
            "log_level": 0,
        }
        self.errors: list[str] = []
        self.written = 0
        self._producer = Producer(
            self.config | {"error_cb": lambda error: self.errors.append(error.str()), "linger.ms": 1}
        )

    def write(self, count: int = 200) -> None:
        for _ in range(count):
            self._producer.produce("traffic", bytes(1000), on_delivery=self._delivered)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.written += 1


def shown(broker: BrokerProcess) -> str:
    return ssl.get_server_certificate((broker.host, broker.port)).strip()


OLD_PEM = server_certificate().certificate_pem.decode().strip()
NEW_PEM = OTHER.certificate_pem.decode().strip()


def write_until_shown(traffic: Traffic, broker: BrokerProcess, pem: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while shown(broker) != pem:
        assert time.monotonic() < deadline, broker.errors
        traffic.write()


def test_a_changed_file_is_found_and_sighup_finds_it_at_once(
    start_broker: StartBroker, files: CertificateFiles
) -> None:
    broker = start_broker(*options(files.server_settings))
    traffic = Traffic(broker, files)
    traffic.write()
    assert shown(broker) == OLD_PEM
    files.replace_keystore(OTHER.keystore_pem)
    write_until_shown(traffic, broker, NEW_PEM)
    files.replace_keystore(server_certificate().keystore_pem)
    os.kill(broker.pid, signal.SIGHUP)
    write_until_shown(traffic, broker, OLD_PEM)
    files.replace_keystore(b"nothing")
    os.kill(broker.pid, signal.SIGHUP)
    while "the old one stays in force" not in broker.errors:
        traffic.write()
    assert shown(broker) == OLD_PEM
    traffic.write()
    assert traffic.errors == []


def test_alter_configs_replaces_a_certificate_and_refuses_one_that_cannot_be_used(
    start_broker: StartBroker, files: CertificateFiles
) -> None:
    broker = start_broker(*options(files.server_settings))
    traffic = Traffic(broker, files)
    traffic.write()
    admin = AdminClient(traffic.config)

    def alter(name: str, path: str) -> None:
        entry = ConfigEntry(name, path, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    (files.directory / "new.pem").write_bytes(OTHER.keystore_pem)
    with pytest.raises(KafkaException, match="No such file"):
        alter(SETTING, "/missing.pem")
    with pytest.raises(KafkaException, match="only per-listener"):
        alter("ssl.keystore.location", str(files.directory / "new.pem"))
    assert shown(broker) == OLD_PEM
    alter(SETTING, str(files.directory / "new.pem"))
    write_until_shown(traffic, broker, NEW_PEM)
    assert traffic.errors == []
    broker.stop()
    broker.start()
    assert shown(broker) == NEW_PEM
