"""From PLAINTEXT to SASL_SSL under load, without a restart: a second listener opens, the clients move, the first one
closes.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from support.broker.broker_process import BrokerProcess, closed_port
from support.security.commands import flintmq
from support.tls.certificates import CertificateFiles

TIMEOUT_S = 60.0
TOPIC, GROUP = "orders", "billing"
PRODUCERS, CONSUMER = ("web", "shop"), "consumer"
USER, PASSWORD = "alice", "alice-secret"
MECHANISM = "SCRAM-SHA-512"
RECORDS_PER_STEP = 100
_PAUSE_S = 0.002


class Clients:
    """Two producers and a consumer, each of which moves to other settings when `move` is called.

    The consumer commits what it has read before it moves, and nothing else does: so a record that is read twice, or
    lost, shows.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[Any] = []
        self.read: list[bytes] = []
        self._config = dict.fromkeys((*PRODUCERS, CONSUMER), config)
        self._stopping = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._produce, args=(name,), name=name) for name in PRODUCERS),
            threading.Thread(target=self._consume, name=CONSUMER),
        ]
        self._errors: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    def move(self, client: str, config: dict[str, Any]) -> None:
        self._config[client] = config

    def wait_for(self, count: int) -> None:
        """Wait until this many more records are acknowledged and read."""
        acknowledged, read = len(self.acknowledged) + count, len(self.read) + count
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.acknowledged) < acknowledged or len(self.read) < read:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} written, {len(self.read)} read"
            assert not self._errors, self._errors
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        assert not self._errors, self._errors

    def _produce(self, name: str) -> None:
        try:
            numbers = itertools.count()
            while not self._stopping.is_set():
                config = self._config[name]
                producer = confluent_kafka.Producer({**config, "enable.idempotence": True, "linger.ms": 1})
                while not self._stopping.is_set() and config is self._config[name]:
                    value = f"{name} {next(numbers)}".encode()
                    producer.produce(TOPIC, value, on_delivery=self._delivered)
                    producer.poll(_PAUSE_S)
                assert producer.flush(TIMEOUT_S) == 0
        except BaseException as error:
            self._errors.append(error)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(error)

    def _consume(self) -> None:
        try:
            while not self._is_done():
                config = self._config[CONSUMER]
                consumer = confluent_kafka.Consumer(
                    {
                        **config,
                        "group.id": GROUP,
                        "auto.offset.reset": "earliest",
                        "enable.auto.commit": False,
                        "enable.auto.offset.store": False,
                        "session.timeout.ms": 10_000,
                    }
                )
                consumer.subscribe([TOPIC])
                while not self._is_done() and config is self._config[CONSUMER]:
                    message = consumer.poll(0.05)
                    if message is not None and message.error() is None:
                        self.read.append(message.value())
                        consumer.store_offsets(message)
                consumer.commit(asynchronous=False)
                consumer.close()
        except BaseException as error:
            self._errors.append(error)

    def _is_done(self) -> bool:
        return (
            self._stopping.is_set()
            and not any(thread.is_alive() for thread in self._threads[:-1])
            and (len(self.read) >= len(self.acknowledged))
        )


def test_a_broker_moves_to_sasl_ssl_under_load_without_a_restart(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    plain_port, secure_port = closed_port(), closed_port()
    plain = {"bootstrap.servers": f"127.0.0.1:{plain_port}", "log_level": 0}
    secure = {
        "bootstrap.servers": f"127.0.0.1:{secure_port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": files.ca,
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }
    command_config = tmp_path / "client.properties"
    command_config.write_text(
        "".join(f"{name}={value}\n" for name, value in secure.items() if name != "log_level")
    )
    first = f"PLAINTEXT://127.0.0.1:{plain_port}"
    second = f"SASL_SSL://127.0.0.1:{secure_port}"
    as_user = ("--command-config", str(command_config), "--bootstrap-server", f"127.0.0.1:{secure_port}")
    broker = BrokerProcess(tmp_path / "data", settings(f"listeners={first}"))
    with broker:
        pid = broker.pid
        clients = Clients(plain)
        try:
            clients.wait_for(RECORDS_PER_STEP)
            add_user(broker.address)
            flintmq(
                *("config", "--bootstrap-server", broker.address, "--alter", f"listeners={first},{second}"),
                *("--alter", f"listener.name.sasl_ssl.ssl.keystore.location={files.keystore}"),
                *("--alter", f"listener.name.sasl_ssl.sasl.enabled.mechanisms={MECHANISM}"),
            )
            clients.wait_for(RECORDS_PER_STEP)
            for client in (CONSUMER, *PRODUCERS):
                clients.move(client, secure)
                clients.wait_for(RECORDS_PER_STEP)

            flintmq("config", "--alter", f"listeners={second}", *as_user)
            clients.wait_for(RECORDS_PER_STEP)
            with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", plain_port)):
                pass
            assert (broker.is_running, broker.pid) == (True, pid)
        finally:
            clients.stop()

        # What was changed is in force after a restart, whatever the broker is started with.
        assert broker.stop() == 0
        broker.start()
        assert broker.addresses == [f"127.0.0.1:{secure_port}"]
        assert f"listeners={second} is in force" in broker.errors
        assert "orders" in flintmq("topic", "list", *as_user).stdout
    assert clients.failed == []
    assert len(set(clients.acknowledged)) == len(clients.acknowledged)
    assert sorted(clients.read) == sorted(clients.acknowledged)
    for name in PRODUCERS:
        own = [value for value in clients.read if value.startswith(name.encode())]
        assert own == [f"{name} {number}".encode() for number in range(len(own))]


def settings(*given: str) -> list[str]:
    return [word for text in ("flint.rest.port=-1", *given) for word in ("--set", text)]


def add_user(address: str) -> None:
    flintmq(
        *("user", "add", USER, "--password-file", "-", "--mechanism", MECHANISM),
        *("--bootstrap-server", address),
        text=PASSWORD,
    )
