"""Clients of every language over SASL_SSL with SCRAM-SHA-512 and over mutual TLS: each writes and reads.

OAUTHBEARER is shown with librdkafka and Java, over SASL_SSL too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import pytest

from bench.peers import KAFKA_CORE_JAR, kafka_libs
from support.broker.broker_process import BrokerProcess, clean_environment
from support.broker.secured import jaas
from support.clients.foreign_programs import ClientCommand, Program
from support.clients.kafka_clients import Kcat
from support.security.tokens import key_set, signed
from support.tls.certificates import CertificateFiles, authority

# The programs are built once, by the worker that has the other tests of them.
pytestmark = pytest.mark.xdist_group("foreign-clients")

TIMEOUT_S = 60.0
USER, PASSWORD = "alice", "alice-secret"
MECHANISM = "SCRAM-SHA-512"
FIRST_RIGHT_NONCE = (2, 6, 1)
"""librdkafka before this version repeats its nonce, which Apache Kafka 4.3 and FlintMQ reject."""
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
WAYS = ("SASL_SSL", "mutual TLS")
VALUES = [b"value-%d" % number for number in range(20)]


@dataclass(frozen=True)
class Way:
    """How clients reach one listener."""

    address: str
    files: CertificateFiles
    is_mutual: bool

    @property
    def certificate(self) -> tuple[str, str]:
        return self.files.client(authority().issue(USER), USER)

    @property
    def librdkafka(self) -> dict[str, Any]:
        config = {"bootstrap.servers": self.address, "ssl.ca.location": self.files.ca}
        if self.is_mutual:
            certificate, key = self.certificate
            own = {"ssl.certificate.location": certificate, "ssl.key.location": key}
            return config | own | {"security.protocol": "SSL"}
        login = {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return config | login | {"security.protocol": "SASL_SSL"}

    @property
    def python(self) -> dict[str, Any]:
        """For kafka-python and aiokafka."""
        context = ssl.create_default_context(cafile=self.files.ca)
        config: dict[str, Any] = {"bootstrap_servers": self.address, "ssl_context": context}
        if self.is_mutual:
            context.load_cert_chain(*self.certificate)
            return config | {"security_protocol": "SSL"}
        login = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return config | login | {"security_protocol": "SASL_SSL", "sasl_mechanism": MECHANISM}

    @property
    def environment(self) -> dict[str, str]:
        """For the programs in `tests/clients/`."""
        found = {"CLIENT_CA": self.files.ca, "CLIENT_PROPERTIES": self._properties()}
        if self.is_mutual:
            certificate, key = self.certificate
            return found | {"CLIENT_CERTIFICATE": certificate, "CLIENT_KEY": key}
        return found | {"CLIENT_USER": USER, "CLIENT_PASSWORD": PASSWORD}

    def _properties(self) -> str:
        """Java's settings in a file."""
        settings = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.files.ca}
        if self.is_mutual:
            keystore = self.files.directory / "client-keystore.pem"
            keystore.write_bytes(authority().issue(USER).keystore_pem)
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
            settings["security.protocol"] = "SSL"
        else:
            settings["security.protocol"] = "SASL_SSL"
            settings["sasl.mechanism"] = MECHANISM
            settings["sasl.jaas.config"] = f'{LOGIN} required username="{USER}" password="{PASSWORD}";'
        return write_properties(self.files.directory / f"client-{self.is_mutual}.properties", settings)


def write_properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(files: CertificateFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With a listener for each way, and the user."""
    directory = tmp_path_factory.mktemp("secured")
    data, keys = directory / "data", directory / "keys.json"
    keys.write_text(key_set())
    subprocess.run(
        [
            *(sys.executable, "-m", "flintmq", "user", "add", USER, "--password-file", "-"),
            *("--data-dir", str(data), "--mechanism", MECHANISM),
        ],
        input=PASSWORD,
        text=True,
        check=True,
        env=clean_environment(),
    )
    settings = (
        "listeners=SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        f"ssl.keystore.location={files.keystore}",
        "listener.name.ssl.ssl.client.auth=required",
        f"listener.name.ssl.ssl.truststore.location={files.ca}",
        f"sasl.enabled.mechanisms={MECHANISM},PLAIN,OAUTHBEARER",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={jaas({USER: PASSWORD})}",
        f"listener.name.sasl_ssl.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        "listener.name.sasl_ssl.sasl.oauthbearer.expected.audience=flintmq",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{USER};User:CN={USER}",
        "flint.rest.port=-1",
    )
    with BrokerProcess(data, [word for text in settings for word in ("--set", text)]) as started:
        yield started


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, broker: BrokerProcess, files: CertificateFiles) -> Way:
    is_mutual = request.param == "mutual TLS"
    return Way(broker.addresses[is_mutual], files, is_mutual)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def write_and_read(config: dict[str, Any], topic: str) -> None:
    producer = confluent_kafka.Producer(config)
    failed: list[Any] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed
    consumer = confluent_kafka.Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = [consumer.poll(TIMEOUT_S) for _ in VALUES]
        assert [message.value() for message in found if message is not None] == VALUES
    finally:
        consumer.close()


def test_confluent_kafka(way: Way, topic: str) -> None:
    write_and_read(way.librdkafka, topic)


def test_kcat(way: Way, topic: str) -> None:
    if not way.is_mutual and librdkafka_of_kcat() < FIRST_RIGHT_NONCE:
        pytest.skip("toolchain: this kcat has a librdkafka before 2.6.1, whose SCRAM Kafka 4.3 rejects too")
    given = (word for name, value in way.librdkafka.items() for word in ("-X", f"{name}={value}"))
    options = ("-t", topic, *given)
    Kcat().run("-P", *options, given=b"\n".join(VALUES))
    assert Kcat().run("-C", "-o", "beginning", "-e", "-q", *options).split() == VALUES


def librdkafka_of_kcat() -> tuple[int, ...]:
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", Kcat().run("-V").decode())
    assert found is not None
    return tuple(map(int, found.groups()))


def test_kcat_with_a_plain_password(broker: BrokerProcess, files: CertificateFiles, topic: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    config = {**Way(broker.address, files, False).librdkafka, **login}
    options = ("-t", topic, *(word for name, value in config.items() for word in ("-X", f"{name}={value}")))
    Kcat().run("-P", *options, given=b"\n".join(VALUES))
    assert Kcat().run("-C", "-o", "beginning", "-e", "-q", *options).split() == VALUES


def test_kafka_python(way: Way, topic: str) -> None:
    producer = kafka.KafkaProducer(**way.python)
    try:
        for sent in [producer.send(topic, value) for value in VALUES]:
            sent.get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
        **way.python,
    )
    try:
        assert [next(consumer).value for _ in VALUES] == VALUES
    finally:
        consumer.close()


def test_aiokafka(way: Way, topic: str) -> None:
    async def scenario() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**way.python) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        options = {"group_id": topic, "auto_offset_reset": "earliest", **way.python}
        async with aiokafka.AIOKafkaConsumer(topic, **options) as consumer:
            return [bytes((await consumer.getone()).value) for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S)) == VALUES


@pytest.mark.parametrize(
    ("client", "scenarios"),
    [
        ("java", ("write none", "read")),
        ("franz-go", ("write none", "read")),
        # Its consumer is shown by the transactions alone.
        ("kafkajs", ("transactions",)),
    ],
)
def test_programs(
    way: Way,
    topic: str,
    client: str,
    scenarios: tuple[str, ...],
    client_command: ClientCommand,
    tmp_path: Path,
) -> None:
    command = client_command(client)
    command = dataclasses.replace(command, env={**command.env, **way.environment})
    program = Program(command, way.address, tmp_path / "stderr")
    try:
        for scenario in scenarios:
            name, _, option = scenario.partition(" ")
            program.run(name, topic, option)
    finally:
        program.close()


# ---- OAUTHBEARER


def token() -> str:
    now = time.time()
    return signed({"sub": USER, "aud": "flintmq", "iat": int(now), "exp": int(now) + 600})


def test_confluent_kafka_with_a_token(broker: BrokerProcess, files: CertificateFiles, topic: str) -> None:
    config = {
        "bootstrap.servers": broker.address,
        "ssl.ca.location": files.ca,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 600),
    }
    write_and_read(config, topic)


def test_java_with_a_token(
    broker: BrokerProcess,
    files: CertificateFiles,
    topic: str,
    client_command: ClientCommand,
    tmp_path: Path,
) -> None:
    """Its client reads the token from a file, and needs a parser of JSON that is among the broker's jars."""
    if not (Path(kafka_libs()) / KAFKA_CORE_JAR).exists():
        pytest.skip(f"toolchain: {KAFKA_CORE_JAR} is not among Kafka's jars (KAFKA_LIBS)")
    given = tmp_path / "token.jwt"
    given.write_text(token())
    module = "org.apache.kafka.common.security.oauthbearer"
    properties = write_properties(
        tmp_path / "client.properties",
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.ca,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{module}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{module}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": given.as_uri(),
        },
    )
    command = client_command("java")
    at = command.words.index("-cp") + 1
    words = list(command.words)
    words[at] = f"{words[at]}:{kafka_libs()}/*"
    words[1:1] = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={given.as_uri()}"]
    command = dataclasses.replace(command, words=tuple(words), env={"CLIENT_PROPERTIES": properties})
    program = Program(command, broker.address, tmp_path / "stderr")
    try:
        program.run("write", topic, "none")
        program.run("read", topic)
    finally:
        program.close()
