"""Tests of code that uses aiokafka, on the test's own event loop."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from flintmq.testing import Broker


def test_a_message_goes_through(flintmq_broker: Broker) -> None:
    async def send_and_receive() -> bytes | None:
        async with AIOKafkaProducer(bootstrap_servers=flintmq_broker.bootstrap_servers) as producer:
            await producer.send_and_wait("chat", b"hello", partition=0)
        async with AIOKafkaConsumer(
            bootstrap_servers=flintmq_broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("chat", 0)])
            message = await asyncio.wait_for(consumer.getone(), timeout=10)
            return bytes(message.value)

    assert asyncio.run(send_and_receive()) == b"hello"


def test_a_moved_leader_is_found_again(flintmq_broker: Broker) -> None:
    flintmq_broker.create_topic("chat")
    moved = flintmq_broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=flintmq_broker.bootstrap_servers) as producer:
            await producer.send_and_wait("chat", b"hello")

    asyncio.run(send())
    assert moved.hits == 2
    assert [record.value for record in flintmq_broker.records("chat")] == [b"hello"]


def test_a_broker_of_its_own_for_one_block() -> None:
    async def topics_after_sending() -> dict[str, int]:
        async with Broker(num_partitions=2) as broker:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send_and_wait("chat", b"hello")
            return broker.topics()

    assert asyncio.run(topics_after_sending()) == {"chat": 2}
