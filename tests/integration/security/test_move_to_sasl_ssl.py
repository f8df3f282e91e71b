"""From PLAINTEXT to SASL_SSL under load: a second listener opens, the clients move, the first one closes.

`listeners` is read at the start: each of the two changes is a restart, during which clients retry.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from support.broker.broker_process import BrokerProcess, clean_environment, closed_port
from support.tls.certificates import CertificateFiles

TIMEOUT_S = 60.0
TOPIC, GROUP = "orders", "billing"
USER, PASSWORD = "alice", "alice-secret"
MECHANISM = "SCRAM-SHA-512"
RECORDS_PER_STEP = 100
_PAUSE_S = 0.002


class Clients:
    """A producer and a consumer, each of which moves to other settings when `move` is called.

    The consumer commits what it has read before it moves, and nothing else does: so a record that is read twice, or
    lost, shows.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[Any] = []
        self.read: list[int] = []
        self._config = {"producer": config, "consumer": config}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, name="producer"),
            threading.Thread(target=self._consume, name="consumer"),
        ]
        self._errors: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    def move(self, client: str, config: dict[str, Any]) -> None:
        self._config[client] = config

    def wait_for(self, count: int) -> None:
        """Until so many more records are acknowledged and read."""
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

    def _produce(self) -> None:
        try:
            numbers = itertools.count()
            while not self._stopping.is_set():
                config = self._config["producer"]
                producer = confluent_kafka.Producer({**config, "enable.idempotence": True, "linger.ms": 1})
                while not self._stopping.is_set() and config is self._config["producer"]:
                    producer.produce(TOPIC, b"%d" % next(numbers), on_delivery=self._delivered)
                    producer.poll(_PAUSE_S)
                assert producer.flush(TIMEOUT_S) == 0
        except BaseException as error:
            self._errors.append(error)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.failed.append(error)

    def _consume(self) -> None:
        try:
            while not self._is_done():
                config = self._config["consumer"]
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
                while not self._is_done() and config is self._config["consumer"]:
                    message = consumer.poll(0.05)
                    if message is not None and message.error() is None:
                        self.read.append(int(message.value()))
                        consumer.store_offsets(message)
                consumer.commit(asynchronous=False)
                consumer.close()
        except BaseException as error:
            self._errors.append(error)

    def _is_done(self) -> bool:
        return (
            self._stopping.is_set()
            and not self._threads[0].is_alive()
            and (len(self.read) >= len(self.acknowledged))
        )


def test_a_broker_moves_to_sasl_ssl_under_load(tmp_path: Path) -> None:
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
    first = f"PLAINTEXT://127.0.0.1:{plain_port}"
    second = f"SASL_SSL://127.0.0.1:{secure_port}"
    secured = (f"ssl.keystore.location={files.keystore}", f"sasl.enabled.mechanisms={MECHANISM}")
    broker = BrokerProcess(tmp_path / "data", settings(f"listeners={first}"))
    with broker:
        clients = Clients(plain)
        try:
            clients.wait_for(RECORDS_PER_STEP)
            add_user(broker.address)

            restart(broker, f"listeners={first},{second}", *secured)
            clients.wait_for(RECORDS_PER_STEP)
            for client in ("consumer", "producer"):
                clients.move(client, secure)
                clients.wait_for(RECORDS_PER_STEP)

            restart(broker, f"listeners={second}", *secured)
            clients.wait_for(RECORDS_PER_STEP)
        finally:
            clients.stop()
    assert clients.failed == []
    assert clients.acknowledged == list(range(len(clients.acknowledged)))
    assert clients.read == clients.acknowledged


def settings(*given: str) -> list[str]:
    return [word for text in ("flint.rest.port=-1", *given) for word in ("--set", text)]


def add_user(address: str) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "flintmq", "user", "add", USER, "--password-file", "-"),
            *("--mechanism", MECHANISM, "--bootstrap-server", address),
        ],
        input=PASSWORD,
        text=True,
        check=True,
        env=clean_environment(),
    )


def restart(broker: BrokerProcess, *given: str) -> None:
    assert broker.stop() == 0
    broker.args = settings(*given)
    broker.start()
