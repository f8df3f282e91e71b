"""Tests of code that uses kafka-python."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from flintmq.testing import Broker

NOON_MS = 1_700_000_000_000


def test_events_carry_the_time_at_which_they_arrived(flintmq_broker: Broker) -> None:
    flintmq_broker.create_topic("events", configs={"message.timestamp.type": "LogAppendTime"})
    flintmq_broker.clock.set(NOON_MS)

    producer = KafkaProducer(bootstrap_servers=flintmq_broker.bootstrap_servers)
    producer.send("events", b"login").get(timeout=10)
    flintmq_broker.clock.advance(3600)
    producer.send("events", b"logout").get(timeout=10)
    producer.close()

    times = [record.timestamp for record in flintmq_broker.records("events")]
    assert times == [NOON_MS, NOON_MS + 3_600_000]


def test_a_reader_survives_a_restart_of_the_broker(flintmq_broker: Broker) -> None:
    flintmq_broker.produce("events", "login", partition=0)
    consumer = KafkaConsumer(bootstrap_servers=flintmq_broker.bootstrap_servers, consumer_timeout_ms=10_000)
    consumer.assign([TopicPartition("events", 0)])
    consumer.seek_to_beginning()
    first = next(consumer)

    flintmq_broker.restart()
    flintmq_broker.produce("events", "logout", partition=0)
    second = next(consumer)
    consumer.close()

    assert (first.value, second.value) == (b"login", b"logout")


def test_a_silent_broker_is_given_up(flintmq_broker: Broker) -> None:
    flintmq_broker.create_topic("events")
    silence = flintmq_broker.faults.drop("Produce", times=None)

    producer = KafkaProducer(
        bootstrap_servers=flintmq_broker.bootstrap_servers,
        request_timeout_ms=300,
        delivery_timeout_ms=500,
    )
    with pytest.raises(KafkaTimeoutError):
        producer.send("events", b"login").get(timeout=10)
    producer.close(timeout=0)

    assert silence.hits >= 1
    assert flintmq_broker.records("events") == []
