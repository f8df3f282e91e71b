"""Compacted topics of a real broker, through real clients (Z7, R3, R5)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from flintmq.errors import ErrorCode
from flintmq.testing import Broker
from support.broker.broker_process import BrokerProcess
from support.clients.kafka_clients import CLIENTS, Confluent, Failed, Message

TIMEOUT_S = 30.0
HOUR_S = 3600.0
NOW_MS = 1_700_000_000_000
FAST = ("--set", "flint.rest.port=-1", "--set", "log.cleaner.backoff.ms=0")
SMALL = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("compaction") / "data", FAST) as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def create(address: str, topic: str, **changes: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": address})
    settings = {**SMALL, **{name.replace("_", "."): value for name, value in changes.items()}}
    done(admin.create_topics([NewTopic(topic, 1, 1, config=settings)]))
    return admin


def read(address: str, topic: str) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Offset, key, value and time of all that a consumer finds."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "compaction",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[tuple[int, bytes | None, bytes | None, int]] = []
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, low)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return found
            found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()


def messages(keys: int, rounds: int, size: int = 100) -> list[Message]:
    return [
        Message(b"%d-" % number + bytes(size), key=b"k%d" % (number % keys), timestamp=NOW_MS + number)
        for number in range(keys * rounds)
    ]


def test_only_the_newest_of_each_key_is_left_with_its_offset_and_time(
    broker: BrokerProcess, topic: str
) -> None:
    create(broker.address, topic)
    sent = messages(keys=5, rounds=40)
    for at in range(0, len(sent), 10):
        Confluent().produce(broker.address, topic, sent[at : at + 10])
    sealed = len(sent) - 30  # the active segment is not compacted
    wait_for(lambda: len(read(broker.address, topic)) < 40)
    found = read(broker.address, topic)
    newest = {message.key: (number, message) for number, message in enumerate(sent)}
    for number, message in newest.values():
        assert (number, message.key, message.value, message.timestamp) in found
    clean = [key for offset, key, _, _ in found if offset < sealed]
    assert len(clean) == len(set(clean))
    for offset, key, value, timestamp in found:
        original = sent[offset]
        assert (key, value, timestamp) == (original.key, original.value, original.timestamp)


def test_a_record_without_a_key_is_refused_with_invalid_record(broker: BrokerProcess, topic: str) -> None:
    create(broker.address, topic)
    with pytest.raises(Failed) as failed:
        Confluent().produce(broker.address, topic, [Message(b"value")])
    assert failed.value.code == ErrorCode.INVALID_RECORD
    for client in CLIENTS.values():
        client.produce(broker.address, topic, [Message(b"value", key=b"key")])


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_describe_configs_tells_the_cleanup_policy(broker: BrokerProcess, topic: str, policy: str) -> None:
    """Kafka Connect and the Schema Registry refuse to start unless their topics are `compact` and nothing else."""
    admin = create(broker.address, topic, cleanup_policy=policy)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = admin.describe_configs([resource]).values()
    entry = described.result(TIMEOUT_S)["cleanup.policy"]
    assert entry.value == policy
    assert entry.source == 1  # the topic's own
    assert not entry.is_default


def test_a_topic_whose_policy_is_changed_is_compacted_from_then_on(broker: BrokerProcess, topic: str) -> None:
    admin = create(broker.address, topic, cleanup_policy="delete")
    for message in messages(keys=2, rounds=30):
        Confluent().produce(broker.address, topic, [message])
    assert len(read(broker.address, topic)) == 60
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
        )
    )
    wait_for(lambda: len(read(broker.address, topic)) < 30)


def test_an_idempotent_producer_goes_on_over_compaction_and_a_restart(tmp_path: Path, topic: str) -> None:
    options = {"enable.idempotence": True, "acks": "all"}
    with BrokerProcess(tmp_path / "data", FAST) as broker:
        create(broker.address, topic)
        broker.args += ["--port", str(broker.port)]
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, **options})
        failures: list[object] = []

        def send(start: int, end: int) -> None:
            for number in range(start, end):
                producer.produce(
                    topic,
                    b"%d" % number + bytes(150),
                    b"k%d" % (number % 3),
                    0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                assert producer.flush(TIMEOUT_S) == 0

        send(0, 60)
        wait_for(lambda: len(read(broker.address, topic)) < 30)
        broker.stop()
        broker.start()
        send(60, 80)
        assert failures == []
        found = read(broker.address, topic)
        values = {key: value for _, key, value, _ in found}
        newest = {b"k%d" % (number % 3): number for number in range(80)}
        assert values == {key: b"%d" % number + bytes(150) for key, number in newest.items()}
        assert found[-1][0] == 79


def test_compact_and_delete_together(topic: str) -> None:
    """Old segments go, and of those that stay only the newest of each key is left."""
    with Broker(
        log_cleaner_backoff_ms=1, log_retention_check_interval_ms=1000, log_segment_delete_delay_ms=0
    ) as broker:
        broker.clock.set(NOW_MS)
        broker.create_topic(
            topic,
            configs={
                "cleanup.policy": "compact,delete",
                "retention.ms": 3_600_000,
                "segment.bytes": 2000,
                "min.cleanable.dirty.ratio": 0.01,
            },
        )
        for number in range(30):
            broker.produce(topic, b"%d" % number + bytes(100), key=f"old-{number % 3}", timestamp=NOW_MS)
        broker.clock.advance(0.9 * HOUR_S)
        young = broker.clock.now_ms()
        for number in range(60):
            broker.produce(topic, b"%d" % number + bytes(100), key=f"new-{number % 3}", timestamp=young)
        broker.clock.advance(1)
        wait_for(lambda: len(broker.records(topic)) < 40)
        keys = {record.key for record in broker.records(topic)}
        assert keys == {b"old-0", b"old-1", b"old-2", b"new-0", b"new-1", b"new-2"}
        broker.clock.advance(0.2 * HOUR_S)
        wait_for(lambda: {record.key for record in broker.records(topic)} == {b"new-0", b"new-1", b"new-2"})
        assert min(record.offset for record in broker.records(topic)) >= 30


def test_tombstones_go_after_delete_retention_ms(topic: str) -> None:
    with Broker(log_cleaner_backoff_ms=1) as broker:
        broker.clock.set(NOW_MS)
        settings = {**SMALL, "delete.retention.ms": "60000"}
        broker.create_topic(topic, configs=settings)

        def fill(key: str) -> None:
            for _ in range(40):
                broker.produce(topic, bytes(100), key=key, timestamp=broker.clock.now_ms())

        broker.produce(topic, b"value", key="gone", timestamp=NOW_MS)
        broker.produce(topic, None, key="gone", timestamp=NOW_MS)
        fill("a")
        broker.clock.advance(1)
        wait_for(lambda: len(broker.records(topic)) < 40)
        assert [r.value for r in broker.records(topic) if r.key == b"gone"] == [None]
        broker.clock.advance(61)
        fill("b")
        broker.clock.advance(1)
        wait_for(lambda: all(record.key != b"gone" for record in broker.records(topic)))


# ---- a small disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "flintmq-test", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("toolchain: mount, to make a small file system")
    if made.returncode:
        pytest.skip(f"toolchain: the right to mount a small file system ({made.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_pass_that_finds_no_room_fails_leaves_nothing_and_comes_again(
    small_disk: Path, tmp_path: Path, topic: str
) -> None:
    """Every key once, so that the cleaned segments need as much room as there was; a balloon takes the rest."""
    broker = BrokerProcess(small_disk / "data", FAST)
    broker.error_log = tmp_path / "stderr"
    balloon = small_disk / "balloon"
    with broker:
        create(broker.address, topic, segment_bytes="2000000", min_compaction_lag_ms="3600000")
        admin = AdminClient({"bootstrap.servers": broker.address})
        now_ms = int(time.time() * 1000)
        sent = [Message(bytes(5000), key=b"k%d" % n, timestamp=now_ms) for n in range(900)]
        Confluent().produce(broker.address, topic, sent)
        free = int(subprocess.check_output(["df", "--output=avail", "-B1", str(small_disk)]).split()[-1])
        balloon.write_bytes(bytes(max(0, free - 300_000)))
        change = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
        done(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
            )
        )
        wait_for(lambda: "No space left" in broker.errors)
        folder = small_disk / "data" / f"{topic}-0"
        wait_for(lambda: not list(folder.glob("*.cleaned")))
        assert Confluent().produce(broker.address, topic, [Message(b"on", key=b"k0", timestamp=now_ms)]) == [
            900
        ]
        assert len(read(broker.address, topic)) == 901
        balloon.unlink()
        wait_for(lambda: "compacted up to offset" in broker.errors)
        found = read(broker.address, topic)
        assert {key for _, key, _, _ in found} == {message.key for message in sent}
        assert found[-1][:3] == (900, b"k0", b"on")
