"""Transactions of Python's Kafka clients, unchanged: commit, abort, offsets, fencing (F6, N1; KIP-98).

Clients of other languages are in `test_foreign_clients`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker.broker_process import BrokerProcess

TIMEOUT_S = 30.0
END = b"end"


class TransactionalClient(Protocol):
    def write(self, address: str, topic: str, rounds: Sequence[tuple[bytes, bool]]) -> None:
        """For each value a transaction, which is committed or not. The id is the topic's name."""
        ...

    def commit_offset(self, address: str, topic: str, group: str, offset: int, *, committed: bool) -> None:
        """The offset of partition 0 in a transaction."""
        ...

    def read(self, address: str, topic: str) -> list[bytes]:
        """What is committed in partition 0, up to a value that says END."""
        ...


class Confluent:
    def _producer(self, address: str, topic: str) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": topic})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def write(self, address: str, topic: str, rounds: Sequence[tuple[bytes, bool]]) -> None:
        producer = self._producer(address, topic)
        for value, committed in rounds:
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            if committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)

    def commit_offset(self, address: str, topic: str, group: str, offset: int, *, committed: bool) -> None:
        producer = self._producer(address, topic)
        settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": group}
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            producer.begin_transaction()
            place = confluent_kafka.TopicPartition(topic, 0, offset)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
            if committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)

    def read(self, address: str, topic: str) -> list[bytes]:
        settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": "none"}
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            found: list[bytes] = []
            while END not in found:
                (message,) = consumer.consume(1, TIMEOUT_S)
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                found.append(value)
            return found


class KafkaPython:
    def _producer(self, address: str, topic: str) -> Any:
        producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=topic)
        producer.init_transactions()
        return producer

    def write(self, address: str, topic: str, rounds: Sequence[tuple[bytes, bool]]) -> None:
        with closing(self._producer(address, topic)) as producer:
            for value, committed in rounds:
                producer.begin_transaction()
                producer.send(topic, value, partition=0).get(TIMEOUT_S)
                if committed:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

    def commit_offset(self, address: str, topic: str, group: str, offset: int, *, committed: bool) -> None:
        with closing(self._producer(address, topic)) as producer:
            producer.begin_transaction()
            place = kafka.TopicPartition(topic, 0)
            producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(offset, "", -1)}, group)
            if committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def read(self, address: str, topic: str) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=address, group_id=None, isolation_level="read_committed"
        )
        with closing(consumer):
            place = kafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            found: list[bytes] = []
            while END not in found:
                batch = consumer.poll(TIMEOUT_S * 1000)
                assert batch, found
                found += [one.value for one in batch[place]]
            return found


class Aiokafka:
    def write(self, address: str, topic: str, rounds: Sequence[tuple[bytes, bool]]) -> None:
        async def run() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=address, transactional_id=topic
            ) as producer:
                for value, committed in rounds:
                    await producer.begin_transaction()
                    await producer.send_and_wait(topic, value, partition=0)
                    await (producer.commit_transaction() if committed else producer.abort_transaction())

        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def commit_offset(self, address: str, topic: str, group: str, offset: int, *, committed: bool) -> None:
        async def run() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=address, transactional_id=topic
            ) as producer:
                await producer.begin_transaction()
                place = aiokafka.TopicPartition(topic, 0)
                await producer.send_offsets_to_transaction({place: offset}, group)
                await (producer.commit_transaction() if committed else producer.abort_transaction())

        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def read(self, address: str, topic: str) -> list[bytes]:
        async def run() -> list[bytes]:
            place = aiokafka.TopicPartition(topic, 0)
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address, group_id=None, isolation_level="read_committed"
            ) as consumer:
                consumer.assign([place])
                consumer.seek(place, 0)
                found: list[bytes] = []
                while END not in found:
                    found.append((await consumer.getone()).value)
                return found

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


CLIENTS: dict[str, TransactionalClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactional") / "data") as started:
        yield started


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"t-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1)])[name].result(TIMEOUT_S)
    return name


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    return CLIENTS[str(request.param)]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    broker: BrokerProcess, client: TransactionalClient, topic: str
) -> None:
    rounds = [(b"%d" % number, number % 3 != 1) for number in range(10)]
    client.write(broker.address, topic, [*rounds, (END, True)])
    wanted = [value for value, committed in rounds if committed] + [END]
    assert {name: reader.read(broker.address, topic) for name, reader in CLIENTS.items()} == dict.fromkeys(
        CLIENTS, wanted
    )


def test_offsets_count_with_their_transaction(
    broker: BrokerProcess, client: TransactionalClient, topic: str
) -> None:
    group = f"g-{topic}"
    client.commit_offset(broker.address, topic, group, 7, committed=True)
    client.commit_offset(broker.address, topic, group, 8, committed=False)
    settings: dict[str, Any] = {"bootstrap.servers": broker.address, "group.id": group}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
    assert found.offset == 7


def test_a_client_takes_the_id_of_one_that_left_a_transaction_open(
    broker: BrokerProcess, client: TransactionalClient, topic: str
) -> None:
    zombie = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    zombie.init_transactions(TIMEOUT_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(TIMEOUT_S) == 0
    client.write(broker.address, topic, [(b"current", True), (END, True)])
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    assert client.read(broker.address, topic) == [b"current", END]
