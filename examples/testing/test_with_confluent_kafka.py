"""Tests of code that uses confluent-kafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from flintmq.testing import Broker


def test_an_order_is_written(flintmq_broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": flintmq_broker.bootstrap_servers})
    producer.produce("orders", key="42", value="book")
    producer.flush()

    (record,) = flintmq_broker.records("orders")
    assert (record.key, record.value) == (b"42", b"book")


def test_orders_are_read(flintmq_broker: Broker) -> None:
    flintmq_broker.produce("orders", "book", "lamp", partition=0)

    consumer = Consumer({"bootstrap.servers": flintmq_broker.bootstrap_servers, "group.id": "shop"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    orders = consumer.consume(2, timeout=10)
    consumer.close()

    assert [order.value() for order in orders] == [b"book", b"lamp"]


def test_a_lost_answer_does_not_write_twice(flintmq_broker: Broker) -> None:
    lost = flintmq_broker.faults.close("Produce", when="after")

    producer = Producer({"bootstrap.servers": flintmq_broker.bootstrap_servers, "enable.idempotence": True})
    producer.produce("orders", "book")
    producer.flush()

    assert lost.hits == 1
    assert len(flintmq_broker.records("orders")) == 1


def test_an_order_that_cannot_be_written_is_reported(flintmq_broker: Broker) -> None:
    flintmq_broker.faults.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", topic="orders")
    errors: list[Any] = []

    producer = Producer({"bootstrap.servers": flintmq_broker.bootstrap_servers})
    producer.produce("orders", "book", on_delivery=lambda error, _: errors.append(error))
    producer.flush()

    assert [error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert flintmq_broker.records("orders") == []
