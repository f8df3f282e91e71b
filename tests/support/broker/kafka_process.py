"""Apache Kafka in a process of its own, on one node and free ports, to compare with; also with SASL and ACLs.

    with KafkaProcess(tmp_path / "kafka") as kafka:
        connect(kafka.address)

Needs Java and Kafka's jars, from `$KAFKA_LIBS` or the suites' cache; a test without them is skipped. Invariant: when
`close` returns, the process is gone.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bench.peers import KAFKA_CORE_JAR, BrokerHome, KafkaPeer, kafka_libs
from flintmq.protocol.messages import MetadataRequest, MetadataResponse
from support.broker.broker_process import closed_port
from support.broker.secured import USERS, SaslWire, jaas

START_TIMEOUT_S = 180.0
_POLL_S = 0.2
_LOG_TAIL_BYTES = 4000
_JAVA_OPTIONS = "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SecuredKafkaPeer(KafkaPeer):
    """PLAIN knows `USERS`; `admin` is the super user."""

    def settings(self, home: BrokerHome) -> str:
        login = jaas(USERS).replace("required", f'required username="admin" password="{USERS["admin"]}"')
        listeners = f"SASL_PLAINTEXT://127.0.0.1:{home.port},CONTROLLER://127.0.0.1:{home.second_port}"
        changed: Mapping[str, str] = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The controller's listener is plain text: it is the broker itself that comes by it.
            "super.users": "User:admin;User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }
        return super().settings(home) + "".join(f"{name}={value}\n" for name, value in changed.items())


class KafkaProcess:
    """In plain text, for everybody."""

    peer: type[KafkaPeer] = KafkaPeer

    def __init__(self, directory: Path) -> None:
        if not os.path.exists(os.path.join(kafka_libs(), KAFKA_CORE_JAR)):
            pytest.skip(f"toolchain: {KAFKA_CORE_JAR} is not among Kafka's jars (KAFKA_LIBS)")
        self._peer = self.peer.found(_JAVA_OPTIONS)
        self._home = BrokerHome(str(directory), closed_port(), closed_port(), closed_port())
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._home.port}"

    def start(self) -> Self:
        self._peer.prepare(self._home)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._peer.command(self._home), env=self._peer.environment(), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise AssertionError(f"Kafka did not start:\n{self._log_tail()}")
            time.sleep(_POLL_S)
        return self

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answers(self) -> bool:
        try:
            with SaslWire(self.address, timeout_s=10) as wire:
                return self._is_ready(wire)
        except (OSError, EOFError):
            return False

    def _is_ready(self, wire: SaslWire) -> bool:
        metadata = wire.ask(MetadataRequest(topics=[]), 8)
        assert isinstance(metadata, MetadataResponse)
        return len(metadata.brokers) > 0

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


class SecuredKafka(KafkaProcess):
    peer = SecuredKafkaPeer

    def _is_ready(self, wire: SaslWire) -> bool:
        return wire.authenticate("admin", USERS["admin"]).error_code == 0
