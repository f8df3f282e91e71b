"""Kafka's clients, unchanged, against a real broker: write, read, seek, administer (Z1, F3, F10)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import KafkaAdminClient

from flintmq.errors import ErrorCode
from support.broker.broker_process import BrokerProcess
from support.clients.kafka_clients import CLIENTS, Confluent, Failed, KafkaClient, Kcat, Message, need_codec

TIMEOUT_S = 30.0
MAX_MESSAGE_BYTES = 1_048_588
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests of this module; each has topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data") as started:
        yield started


@pytest.fixture(params=sorted(CLIENTS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(name: str) -> KafkaClient:
    return CLIENTS[name]


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


# ---- records


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_written(
    broker: BrokerProcess, name: str, client: KafkaClient, topic: str, codec: str
) -> None:
    need_codec(name, codec)
    messages = [
        Message(b"value", b"key", TIMESTAMP, (("h", b"1"), ("h", b"2"), ("empty", b""))),
        Message(b"", b"", TIMESTAMP + 1),
        Message(None, b"tombstone", TIMESTAMP + 2),
        Message(b"no key", None, TIMESTAMP - 5),
        *(Message(b"%d" % i * 50, b"k%d" % i, TIMESTAMP + i) for i in range(200)),
    ]
    offsets = client.produce(broker.address, topic, messages, **{"compression.type": codec})
    assert offsets == list(range(len(messages)))
    found = client.consume(broker.address, topic, 0, len(messages))
    assert found == messages
    assert [one.offset for one in found] == offsets


@pytest.mark.parametrize("writer", sorted(CLIENTS))
@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_other_wrote(
    broker: BrokerProcess, writer: str, topic: str, codec: str
) -> None:
    need_codec(writer, codec)
    messages = [Message(b"v" * i, b"k", TIMESTAMP + i, (("by", writer.encode()),)) for i in range(1, 50)]
    CLIENTS[writer].produce(broker.address, topic, messages, **{"compression.type": codec})
    for reader, client in CLIENTS.items():
        if reader == writer or (reader == "kafka-python" and codec in ("snappy", "lz4", "zstd")):
            continue  # the first is tested above; for the second it depends on other packages
        assert client.consume(broker.address, topic, 0, len(messages)) == messages


def test_a_message_near_the_limit_is_taken_and_one_above_is_refused(
    broker: BrokerProcess, name: str, client: KafkaClient, topic: str
) -> None:
    near = Message(b"n" * (MAX_MESSAGE_BYTES - 200), None, TIMESTAMP)
    assert client.produce(broker.address, topic, [near]) == [0]
    with pytest.raises(Failed) as failed:
        client.produce(broker.address, topic, [Message(b"a" * MAX_MESSAGE_BYTES, None, TIMESTAMP)])
    assert failed.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.ends(broker.address, topic) == (0, 1)
    assert client.consume(broker.address, topic, 0, 1) == [near]


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements_lose_nothing_here(
    broker: BrokerProcess, client: KafkaClient, topic: str, acks: int
) -> None:
    messages = [Message(b"%d" % i, None, TIMESTAMP) for i in range(100)]
    client.produce(broker.address, topic, messages, acks=acks)
    assert client.consume(broker.address, topic, 0, 100) == messages


def test_an_idempotent_producer_writes_each_record_once(
    broker: BrokerProcess, client: KafkaClient, topic: str
) -> None:
    messages = [Message(b"%d" % i, None, TIMESTAMP) for i in range(500)]
    offsets = client.produce(broker.address, topic, messages, **{"enable.idempotence": True})
    assert offsets == list(range(500))
    assert client.consume(broker.address, topic, 0, 500) == messages


# ---- offsets


def test_offsets_are_found_by_time(broker: BrokerProcess, client: KafkaClient, topic: str) -> None:
    client.produce(broker.address, topic, [Message(b"%d" % i, None, TIMESTAMP + 10 * i) for i in range(100)])
    assert client.offset_at(broker.address, topic, TIMESTAMP - 1000) == 0
    assert client.offset_at(broker.address, topic, TIMESTAMP) == 0
    assert client.offset_at(broker.address, topic, TIMESTAMP + 1) == 1
    assert client.offset_at(broker.address, topic, TIMESTAMP + 500) == 50
    assert client.offset_at(broker.address, topic, TIMESTAMP + 990) == 99
    assert client.offset_at(broker.address, topic, TIMESTAMP + 991) is None


def test_reading_may_begin_anywhere(broker: BrokerProcess, client: KafkaClient, topic: str) -> None:
    messages = [Message(b"%d" % i, None, TIMESTAMP) for i in range(100)]
    client.produce(broker.address, topic, messages)
    assert client.ends(broker.address, topic) == (0, 100)
    for offset in (0, 1, 37, 99):
        assert client.consume(broker.address, topic, offset, 100 - offset) == messages[offset:]


def test_a_topic_is_made_when_it_is_first_written_to(
    broker: BrokerProcess, client: KafkaClient, topic: str
) -> None:
    """Z3."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    client.produce(broker.address, topic, [Message(b"first", None, TIMESTAMP)])
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics


# ---- administration


def done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def test_confluent_admin_creates_grows_alters_and_deletes(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    done(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "1000"})]))
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 2
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        done(admin.create_topics([NewTopic(topic, 2, 1)]))
    done(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 5

    resource = ConfigResource(ResourceType.TOPIC, topic)
    change = ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
        )
    )
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert (described["max.message.bytes"].value, described["retention.ms"].value) == ("500", "1000")
    assert not described["max.message.bytes"].is_default
    with pytest.raises(Failed) as failed:
        Confluent().produce(broker.address, topic, [Message(b"x" * 1000)])
    assert failed.value.code == ErrorCode.MESSAGE_TOO_LARGE

    done(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_kafka_python_admin_creates_describes_and_deletes(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1}})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_metadata_of_many_topics_is_complete(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    names = [f"many-{i}" for i in range(300)]
    done(admin.create_topics([NewTopic(name, 2, 1) for name in names]))
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    assert all(sorted(found[name].partitions) == [0, 1] for name in names)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.address, group_id=None)
    try:
        assert set(names) <= consumer.topics()
    finally:
        consumer.close()


# ---- kcat


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_reads(broker: BrokerProcess, topic: str, codec: str) -> None:
    kcat = Kcat()
    lines = b"".join(b"k%d:v%d\n" % (i, i) for i in range(100))
    kcat.run("-P", "-b", broker.address, "-t", topic, "-K", ":", "-z", codec, "-H", "from=kcat", given=lines)
    found = kcat.consume(broker.address, topic, 100)
    assert [(one["key"], one["payload"], one["offset"]) for one in found] == [
        (f"k{i}", f"v{i}", i) for i in range(100)
    ]
    assert all(one["headers"] == ["from", "kcat"] for one in found)


def test_kcat_lists_the_broker_and_its_topics(broker: BrokerProcess, topic: str) -> None:
    kcat = Kcat()
    Confluent().produce(broker.address, topic, [Message(b"x")])
    listed = kcat.run("-L", "-b", broker.address).decode()
    assert broker.address in listed
    assert f'topic "{topic}" with 1 partitions' in listed
    assert (
        kcat.run("-Q", "-b", broker.address, "-t", f"{topic}:0:-1").decode().strip()
        == f"{topic} [0] offset 1"
    )
