"""Real clients over TLS and mutual TLS: large batches, reads of many megabytes from disk, and certificates that are
not accepted."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from flintmq.cli.cert.authority import IssuedCertificate
from support.broker.broker_process import BrokerProcess, StartBroker
from support.tls.certificates import DAY, HOSTS, CertificateFiles, authority, now, stranger

TIMEOUT_S = 60.0
RECORDS = 40
RECORD_BYTES = 700_000


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "certificates")


def options(settings: dict[str, str]) -> list[str]:
    return [part for name, text in settings.items() for part in ("--set", f"{name}={text}")]


def confluent(
    broker: BrokerProcess, files: CertificateFiles, certificate: tuple[str, str] | None = None, at: int = 0
) -> dict[str, Any]:
    own = (
        {"ssl.certificate.location": certificate[0], "ssl.key.location": certificate[1]}
        if certificate
        else {}
    )
    return {
        "bootstrap.servers": broker.addresses[at],
        "security.protocol": "SSL",
        "ssl.ca.location": files.ca,
        "log_level": 0,
        **own,
    }


def values() -> list[bytes]:
    return [b"%06d" % number + os.urandom(1000) * (RECORD_BYTES // 1000) for number in range(RECORDS)]


def produce(config: dict[str, Any], topic: str, records: Iterable[bytes]) -> None:
    failed: list[KafkaError] = []
    producer = Producer(config | {"message.max.bytes": 1_000_000, "linger.ms": 5})
    for value in records:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def consume(config: dict[str, Any], topic: str, count: int, group: str = "readers") -> list[bytes]:
    consumer = Consumer(
        config | {"group.id": group, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 30_000_000}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), TIMEOUT_S)
            assert messages, f"{len(found)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message.value())
    finally:
        consumer.close()
    return found


def drop_from_cache(broker: BrokerProcess, topic: str) -> None:
    for path in (broker.data_dir / f"{topic}-0").glob("*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("mutual", [False, True], ids=["TLS", "mutual TLS"])
def test_confluent_kafka_writes_and_reads_many_megabytes(
    start_broker: StartBroker, files: CertificateFiles, mutual: bool
) -> None:
    broker = start_broker(*options(files.mutual_settings if mutual else files.server_settings))
    certificate = files.client(authority().issue("alice")) if mutual else None
    config, records = confluent(broker, files, certificate), values()
    produce(config, "large", records)
    assert consume(config, "large", RECORDS) == records
    drop_from_cache(broker, "large")
    assert consume(config, "large", RECORDS, "later") == records


@pytest.mark.parametrize("mutual", [False, True], ids=["TLS", "mutual TLS"])
def test_kafka_python_writes_and_reads(
    start_broker: StartBroker, files: CertificateFiles, mutual: bool
) -> None:
    broker = start_broker(*options(files.mutual_settings if mutual else files.server_settings))
    config: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "security_protocol": "SSL",
        "ssl_cafile": files.ca,
    }
    if mutual:
        config["ssl_certfile"], config["ssl_keyfile"] = files.client(authority().issue("alice"))
    records = values()[:10]
    producer = kafka.KafkaProducer(**config)
    for value in records:
        producer.send("small", value).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "small", **config, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    found = [next(consumer).value for _ in records]
    consumer.close()
    assert found == records


def test_aiokafka_over_ipv6(start_broker: StartBroker, files: CertificateFiles) -> None:
    try:
        broker = start_broker(*options(files.server_settings | {"listeners": "SSL://[::1]:0"}))
    except AssertionError:
        pytest.skip("toolchain: this machine has no IPv6 loopback")

    async def scenario() -> bytes:
        config = {
            "bootstrap_servers": broker.address,
            "security_protocol": "SSL",
            "ssl_context": ssl.create_default_context(cafile=files.ca),
        }
        async with aiokafka.AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait("six", b"over IPv6")
        async with aiokafka.AIOKafkaConsumer("six", **config, auto_offset_reset="earliest") as consumer:
            value: bytes = (await consumer.getone()).value
            return value

    assert asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S)) == b"over IPv6"


def test_listeners_with_and_without_tls_serve_the_same_topics(
    start_broker: StartBroker, files: CertificateFiles
) -> None:
    settings = files.server_settings | {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
        "listener.name.outside.ssl.enabled.protocols": "TLSv1.2",
    }
    broker = start_broker(*options(settings))
    produce({"bootstrap.servers": broker.addresses[0]}, "shared", [b"one", b"two"])
    assert consume(confluent(broker, files, at=1), "shared", 2) == [b"one", b"two"]


# ---- certificates that are not accepted


def fails_to_connect(config: dict[str, Any]) -> str:
    """The reason that the client gives, once it has failed to connect."""
    reasons: list[str] = []
    admin = AdminClient(config | {"error_cb": lambda error: reasons.append(error.str())})
    while not any("ssl" in reason.lower() or "closed" in reason.lower() for reason in reasons):
        admin.poll(1.0)
        assert len(reasons) < 1000
    return " ".join(reasons)


@pytest.mark.parametrize(
    "certificate",
    [
        pytest.param(
            authority().issue(
                "x", hosts=HOSTS, server=True, not_before=now() - 2 * DAY, not_after=now() - DAY
            ),
            id="expired",
        ),
        pytest.param(
            authority().issue("x", hosts=HOSTS, server=True, not_before=now() + DAY), id="not yet valid"
        ),
        pytest.param(authority().issue("x", hosts=["elsewhere.example"], server=True), id="wrong name"),
        pytest.param(stranger().issue("x", hosts=HOSTS, server=True), id="unknown CA"),
        pytest.param(IssuedCertificate(stranger().certificate, stranger().key), id="self-signed"),
    ],
)
def test_clients_reject_a_broker_whose_certificate_is_wrong(
    start_broker: StartBroker, files: CertificateFiles, certificate: IssuedCertificate
) -> None:
    files.replace_keystore(certificate.keystore_pem)
    broker = start_broker(*options(files.server_settings))
    assert "certificate verify failed" in fails_to_connect(confluent(broker, files))


@pytest.mark.parametrize("certificate", [None, stranger().issue("mallory")], ids=["none", "unknown CA"])
def test_the_broker_rejects_clients_without_a_good_certificate(
    start_broker: StartBroker, files: CertificateFiles, certificate: IssuedCertificate | None
) -> None:
    broker = start_broker(*options(files.mutual_settings))
    own = files.client(certificate, "mallory") if certificate else None
    assert fails_to_connect(confluent(broker, files, own))
    good = confluent(broker, files, files.client(authority().issue("alice")))
    produce(good, "served", [b"still here"])
    assert "the TLS handshake failed" in broker.errors


def test_a_plaintext_client_of_a_tls_port_is_named_in_the_log(
    start_broker: StartBroker, files: CertificateFiles
) -> None:
    broker = start_broker(*options(files.server_settings))
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    while "this is not TLS" not in broker.errors:
        admin.poll(0.1)
