"""Kafka's clients, unchanged, against listeners with SASL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from support.broker.broker_process import BrokerProcess
from support.broker.secured import MECHANISMS, USERS, secured_broker

TIMEOUT_S = 30.0
PASSWORD = USERS["alice"]
SCRAMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with secured_broker(tmp_path_factory.mktemp("sasl") / "data") as started:
        admin = AdminClient(librdkafka(started, "PLAIN"))
        for mechanism in SCRAMS.values():
            info = ScramCredentialInfo(mechanism, 8192)
            changes = [UserScramCredentialUpsertion("alice", info, PASSWORD.encode())]
            for done in admin.alter_user_scram_credentials(changes).values():
                done.result(TIMEOUT_S)
        yield started


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def librdkafka(broker: BrokerProcess, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
        "logger": logging.getLogger("librdkafka"),
    }


def python(broker: BrokerProcess, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_writes_and_reads(broker: BrokerProcess, topic: str, mechanism: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(broker, mechanism))
    producer.produce(topic, b"hello")
    assert producer.flush(TIMEOUT_S) == 0
    reading = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**librdkafka(broker, mechanism), **reading})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.value() == b"hello"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_told_of_a_wrong_password(broker: BrokerProcess, mechanism: str) -> None:
    errors: list[Any] = []
    config = {**librdkafka(broker, mechanism, "wrong"), "error_cb": errors.append}
    producer = confluent_kafka.Producer(config)
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(broker: BrokerProcess, topic: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(**python(broker, mechanism))
    try:
        producer.send(topic, b"hello").get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
        **python(broker, mechanism),
    )
    try:
        assert next(consumer).value == b"hello"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes_and_reads(broker: BrokerProcess, topic: str, mechanism: str) -> None:
    async def write_and_read() -> bytes:
        async with aiokafka.AIOKafkaProducer(**python(broker, mechanism)) as producer:
            await producer.send_and_wait(topic, b"hello")
        options = {"auto_offset_reset": "earliest", **python(broker, mechanism)}
        async with aiokafka.AIOKafkaConsumer(topic, **options) as consumer:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return bytes(message.value)

    assert asyncio.run(write_and_read()) == b"hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_is_told_of_a_wrong_password(broker: BrokerProcess, mechanism: str) -> None:
    async def connect() -> None:
        producer = aiokafka.AIOKafkaProducer(**python(broker, mechanism, "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises((aiokafka.errors.KafkaConnectionError, aiokafka.errors.AuthenticationFailedError)):
        asyncio.run(connect())


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_credentials_are_described_changed_and_deleted(broker: BrokerProcess, mechanism: str) -> None:
    admin = AdminClient(librdkafka(broker, "PLAIN"))
    user, number = f"u-{uuid4()}", SCRAMS[mechanism]
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(number, 4096), b"one")
    admin.alter_user_scram_credentials([upsertion])[user].result(TIMEOUT_S)
    described = admin.describe_user_scram_credentials([user])[user].result(TIMEOUT_S)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [(number, 4096)]
    as_user = {**librdkafka(broker, mechanism, "one"), "sasl.username": user}
    assert AdminClient(as_user).list_topics(timeout=TIMEOUT_S).brokers
    deletion = UserScramCredentialDeletion(user, number)
    admin.alter_user_scram_credentials([deletion])[user].result(TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        admin.describe_user_scram_credentials([user])[user].result(TIMEOUT_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.RESOURCE_NOT_FOUND
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(as_user).list_topics(timeout=2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_authenticate_again_while_they_work(
    tmp_path_factory: pytest.TempPathFactory, topic: str, mechanism: str
) -> None:
    """KIP-368: the session ends every two seconds, and no record is lost or delayed by an error."""
    directory = tmp_path_factory.mktemp("again") / "data"
    setting = "listener.name.sasl_plaintext.connections.max.reauth.ms=2000"
    with secured_broker(directory, setting) as broker:
        admin = AdminClient(librdkafka(broker, "PLAIN"))
        if mechanism in SCRAMS:
            info = ScramCredentialInfo(SCRAMS[mechanism], 4096)
            upsertion = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])["alice"].result(TIMEOUT_S)
        errors: list[Any] = []
        producer = confluent_kafka.Producer(
            {**librdkafka(broker, mechanism), "error_cb": errors.append, "retries": 0}
        )
        delivered: list[Any] = []
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.flush(TIMEOUT_S)
            producer.poll(0.1)
        assert not errors
        assert delivered
        assert not any(delivered)
