"""Quotas with real clients: rates, connections, and what becomes of throttled clients."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from flintmq.protocol import messages as m
from support.broker.broker_process import BrokerProcess
from support.broker.kafka_process import KafkaProcess
from support.cli.command import run
from support.clients.java_program import java_command
from support.security.quotas import TIMEOUT_S, Throughput, librdkafka, read, set_quotas, write
from support.wire.wire import Wire, batch_of, fetch_request, produce_request

QUOTA = 200_000.0
# Two windows, the last of which is the current one: the first second's worth may be used at once.
WINDOWS = ("quota.window.num=2", "controller.quota.window.num=2")


def start(directory: Path, *settings: str) -> BrokerProcess:
    options = ["flint.rest.port=-1", *WINDOWS, *settings]
    return BrokerProcess(directory, [word for text in options for word in ("--set", text)])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("quotas") / "data") as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def fill(address: str, topic: str, size: int) -> None:
    producer = confluent_kafka.Producer({**librdkafka(address, "filler", []), "batch.size": 8192})
    for _ in range(size // 1000):
        producer.produce(topic, bytes(1000))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_producer_has_the_rate_of_its_quota(broker: BrokerProcess, topic: str) -> None:
    set_quotas(broker.address, {"client-id": "writer"}, {"producer_byte_rate": QUOTA})
    result = write(broker.address, "writer", topic, warm_up_s=2, measured_s=6)
    # Of the bytes that count, a few percent are headers.
    assert result.bytes_per_s == pytest.approx(QUOTA, rel=0.1)
    assert any(result.throttled)


def test_a_consumer_has_the_rate_of_its_quota(broker: BrokerProcess, topic: str) -> None:
    """A consumer that ignores throttle times and fetches again at once: the broker alone limits the rate."""
    fill(broker.address, topic, 4_000_000)
    with Wire(broker.address) as wire:
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"consumer_byte_rate": QUOTA})
        try:
            fetch_for(wire, topic, 2)
            rate, throttled = fetch_for(wire, topic, 5)
        finally:
            set_quotas(broker.address, {"user": "ANONYMOUS"}, {"consumer_byte_rate": None})
    assert rate == pytest.approx(QUOTA, rel=0.1)
    assert throttled


def fetch_for(wire: Wire, topic: str, seconds: float) -> tuple[float, int]:
    """Return the bytes per second, and how often the client was throttled."""
    began, received, throttled = time.monotonic(), 0, 0
    while time.monotonic() < began + seconds:
        response = wire.fetch(fetch_request(topic, {0: 0}, partition_max_bytes=9_000), 12)
        throttled += response.throttle_time_ms > 0
        assert (response.throttle_time_ms > 0) == (response.responses == [])
        for one in response.responses:
            received += len(one.partitions[0].records or b"")
    return received / (time.monotonic() - began), throttled


def test_a_throttled_client_delays_no_other(broker: BrokerProcess, topic: str) -> None:
    set_quotas(broker.address, {"client-id": "slow"}, {"producer_byte_rate": 100.0})
    slow = confluent_kafka.Producer(librdkafka(broker.address, "slow", []))
    slow.produce(topic, bytes(100_000))
    try:
        assert slow.flush(TIMEOUT_S) == 0
        slow.produce(topic, b"waits")
        began = time.monotonic()
        fast = confluent_kafka.Producer(librdkafka(broker.address, "fast", []))
        for _ in range(100):
            fast.produce(topic, bytes(1000))
        assert fast.flush(TIMEOUT_S) == 0
        assert time.monotonic() - began < 10
    finally:
        slow.purge()


def test_a_client_that_ignores_its_throttle_time_is_not_read_from(broker: BrokerProcess, topic: str) -> None:
    """And goes on as soon as its quota is deleted, although its time is not over for long."""
    fill(broker.address, topic, 1000)
    with Wire(broker.address) as wire:
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"producer_byte_rate": 100.0})
        response = wire.ask(produce_request(topic, batch_of(bytes(1_000_000))), 9)
        assert isinstance(response, m.ProduceResponse)
        assert response.throttle_time_ms > 1_000_000
        wire.send(m.MetadataRequest(), 12)
        wire.sock.settimeout(1.0)
        with pytest.raises(TimeoutError):
            wire.receive()
        wire.sock.settimeout(TIMEOUT_S)
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"producer_byte_rate": None})
        assert isinstance(wire.receive()[1], m.MetadataResponse)


def test_time_on_the_loop_is_limited(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"request_percentage": 0.1})
        try:
            deadline = time.monotonic() + TIMEOUT_S
            throttle_ms = 0
            while not throttle_ms and time.monotonic() < deadline:
                response = wire.ask(m.MetadataRequest(topics=None), 12)
                assert isinstance(response, m.MetadataResponse)
                throttle_ms = response.throttle_time_ms
            assert 0 < throttle_ms <= 1000
        finally:
            set_quotas(broker.address, {"user": "ANONYMOUS"}, {"request_percentage": None})


def test_mutations_beyond_their_quota_make_an_older_client_wait(broker: BrokerProcess) -> None:
    """KIP-599: librdkafka's version of CreateTopics does not know the error, so the topics are created first."""
    set_quotas(broker.address, {"client-id": "maker"}, {"controller_mutation_rate": 1.0})
    admin = AdminClient(librdkafka(broker.address, "maker", []))
    name = f"m-{uuid4()}"
    # Two at once are free; the other three take three seconds.
    admin.create_topics([NewTopic(f"{name}-1", 5)])[f"{name}-1"].result(TIMEOUT_S)
    began = time.monotonic()
    admin.create_topics([NewTopic(f"{name}-2", 1)])[f"{name}-2"].result(TIMEOUT_S)
    assert time.monotonic() - began > 2


def test_mutations_beyond_their_quota_are_rejected_in_newer_versions(broker: BrokerProcess) -> None:
    request = m.CreateTopicsRequest
    names = [f"m-{uuid4()}" for _ in range(3)]
    topics = [request.CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names]
    with Wire(broker.address) as wire:
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"controller_mutation_rate": 1.0})
        try:
            response = wire.ask(request(topics=topics, timeout_ms=30_000), 7)
        finally:
            set_quotas(broker.address, {"user": "ANONYMOUS"}, {"controller_mutation_rate": None})
        assert isinstance(response, m.CreateTopicsResponse)
        exceeded = confluent_kafka.KafkaError.THROTTLING_QUOTA_EXCEEDED
        assert [one.error_code for one in response.topics] == [0, exceeded, exceeded]
        assert response.throttle_time_ms > 0


def test_an_address_connects_at_the_rate_of_its_quota(tmp_path: Path) -> None:
    """KIP-612. Connections beyond it are accepted by the system, never answered, and closed."""
    with start(tmp_path / "data") as broker:
        set_quotas(broker.address, {"ip": "127.0.0.1"}, {"connection_creation_rate": 5.0})
        answered = 0
        for _ in range(20):
            try:
                with Wire(broker.address, timeout_s=5) as wire:
                    wire.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
                    answered += 1
            except (OSError, EOFError, AssertionError):
                continue
        # Those that are turned away take up to a second each.
        assert 5 <= answered < 20


def test_the_broker_accepts_connections_at_its_rate(tmp_path: Path) -> None:
    with start(tmp_path / "data", "max.connection.creation.rate=3") as broker:
        socks = [socket.create_connection((broker.host, broker.port)) for _ in range(12)]
        deadline = time.monotonic() + 5
        closed = 0
        for sock in socks:
            sock.settimeout(max(0.01, deadline - time.monotonic() - 3))
            try:
                closed += sock.recv(1) == b""
            except TimeoutError:
                continue
            finally:
                sock.close()
        assert closed >= 6


def test_quotas_survive_a_restart(tmp_path: Path, topic: str) -> None:
    broker = start(tmp_path / "data")
    with broker:
        set_quotas(broker.address, {"client-id": "writer"}, {"producer_byte_rate": 1000.0})
        producer = confluent_kafka.Producer(librdkafka(broker.address, "writer", []))
        producer.produce(topic, bytes(100_000))
        assert producer.flush(TIMEOUT_S) == 0
        # Its connection is throttled for more than a minute: the broker stops all the same.
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 10
        producer.purge()
    with broker:
        throttled: list[float] = []
        producer = confluent_kafka.Producer(librdkafka(broker.address, "writer", throttled))
        producer.produce(topic, bytes(100_000))
        assert producer.flush(TIMEOUT_S) == 0
        deadline = time.monotonic() + TIMEOUT_S
        while not any(throttled) and time.monotonic() < deadline:
            producer.poll(0.1)
        assert any(throttled)
        producer.purge()


def test_a_throttled_connection_is_closed_when_it_is_idle(tmp_path: Path, topic: str) -> None:
    with start(tmp_path / "data", "connections.max.idle.ms=1500") as broker, Wire(broker.address) as wire:
        fill(broker.address, topic, 1000)
        set_quotas(broker.address, {"user": "ANONYMOUS"}, {"producer_byte_rate": 100.0})
        wire.ask(produce_request(topic, batch_of(bytes(100_000))), 9)
        wire.sock.settimeout(TIMEOUT_S)
        assert wire.sock.recv(1) == b""


# ---- beside Apache Kafka


@pytest.mark.long
def test_over_thirty_seconds_rates_are_those_of_the_quota_and_of_kafka(
    tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    """With the windows that both have by default. A consumer uses ten seconds' worth at once and then waits for as
    long, in both: only the mean over whole periods of eleven seconds says something.
    """
    directory = tmp_path_factory.mktemp("beside")
    flint = BrokerProcess(directory / "flintmq", ["--set", "flint.rest.port=-1"])
    with flint as ours, KafkaProcess(directory / "kafka") as kafka, ThreadPoolExecutor(4) as threads:
        measured: list[Future[Throughput]] = []
        for address in (kafka.address, ours.address):
            fill(address, f"{topic}-full", 9_000_000)
            set_quotas(address, {"client-id": "writer"}, {"producer_byte_rate": QUOTA})
            set_quotas(address, {"client-id": "reader"}, {"consumer_byte_rate": QUOTA})
            for go, client_id, name in ((write, "writer", topic), (read, "reader", f"{topic}-full")):
                measured.append(threads.submit(go, address, client_id, name, warm_up_s=0, measured_s=33))
        rates = [one.result().bytes_per_s for one in measured]
    print("Kafka writes, reads; FlintMQ writes, reads:", rates)
    for kafkas, flints in zip(rates[:2], rates[2:], strict=True):
        assert flints == pytest.approx(QUOTA, rel=0.1)
        assert flints == pytest.approx(kafkas, rel=0.1)


# ---- tools


def test_the_quota_command(broker: BrokerProcess) -> None:
    server = ("--bootstrap-server", broker.address)
    user = f"u-{uuid4()}"
    assert "1048576" in run("quota", "set", "--user", user, "--producer-byte-rate", "1mb", *server).out
    both = ("--user", user, "--default-client-id")
    run("quota", "set", *both, "--request-percentage", "12.5", *server)
    assert run("quota", "list", "--user", user, "--json", *server).json == [
        {"entity": {"user": user}, "quotas": {"producer_byte_rate": 1048576.0}},
        {"entity": {"user": user, "client-id": None}, "quotas": {"request_percentage": 12.5}},
    ]
    assert "<default>" in run("quota", "list", "--user", user, *server).out
    assert len(run("quota", "list", "--user", user, "--only", "--json", *server).json) == 1
    run("quota", "delete", "--user", user, *server)
    run("quota", "delete", *both, *server)
    assert run("quota", "list", "--user", user, "--json", *server).json == []


@pytest.mark.parametrize(
    "options",
    [
        ("--producer-byte-rate", "1"),
        ("--user", "u"),
        ("--user", "u", "--default-user", "--producer-byte-rate", "1"),
        ("--user", "u", "--ip", "10.0.0.1", "--connection-creation-rate", "1"),
        ("--user", "u", "--producer-byte-rate", "fast"),
    ],
)
def test_the_quota_command_says_what_is_missing(broker: BrokerProcess, options: tuple[str, ...]) -> None:
    assert run("quota", "set", *options, "--bootstrap-server", broker.address, code=2).error


@pytest.mark.parametrize("value", ["0", "nan", "-1", "1.5"])
def test_the_broker_rejects_what_is_no_rate(broker: BrokerProcess, value: str) -> None:
    options = (f"--producer-byte-rate={value}", "--bootstrap-server", broker.address)
    assert "producer_byte_rate" in run("quota", "set", "--user", "u", *options, code=1).error


def test_kafkas_own_tool_sets_and_lists_quotas(broker: BrokerProcess, tmp_path: Path) -> None:
    def configs(*arguments: str) -> str:
        command = java_command(
            "kafka.admin.ConfigCommand", ["--bootstrap-server", broker.address, *arguments], tmp_path
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    entity = (
        "--entity-type",
        "users",
        "--entity-name",
        "java",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    configs("--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    shown = configs("--describe", *entity)
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=50.0" in shown
    configs("--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs("--describe", *entity)
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    configs("--alter", *address, "--add-config", "connection_creation_rate=100")
    assert "connection_creation_rate=100.0" in configs("--describe", *address)
