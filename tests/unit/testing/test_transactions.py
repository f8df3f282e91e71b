"""Transactions as a test sees them: which there are, and what is committed (N1, F4)."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from flintmq.testing import Broker

PATIENCE_S = 30.0


def producer_of(broker: Broker, transactional_id: str = "tx", **config: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **config,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def values(broker: Broker, *, read_committed: bool) -> list[bytes | None]:
    return [record.value for record in broker.records("orders", read_committed=read_committed)]


def write(producer: Producer, *written: str) -> None:
    for value in written:
        producer.produce("orders", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def test_only_what_was_committed_is_read_as_committed() -> None:
    with Broker() as broker:
        assert broker.transactions() == {}
        broker.produce("orders", "plain")
        producer = producer_of(broker)
        assert broker.transactions() == {"tx": "Empty"}
        producer.begin_transaction()
        write(producer, "one")
        assert broker.transactions() == {"tx": "Ongoing"}
        assert values(broker, read_committed=False) == [b"plain", b"one"]
        assert values(broker, read_committed=True) == [b"plain"]
        producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
        write(producer, "two", "three")
        producer.abort_transaction(PATIENCE_S)
        broker.produce("orders", "last")
        assert broker.transactions() == {"tx": "CompleteAbort"}
        assert values(broker, read_committed=True) == [b"plain", b"one", b"last"]
        assert values(broker, read_committed=False) == [b"plain", b"one", b"two", b"three", b"last"]
        broker.restart()
        assert broker.transactions() == {"tx": "CompleteAbort"}
        assert values(broker, read_committed=True) == [b"plain", b"one", b"last"]


def test_transactions_of_two_producers_are_told_apart() -> None:
    with Broker() as broker:
        first, second = producer_of(broker, "first"), producer_of(broker, "second")
        for producer in (first, second):
            producer.begin_transaction()
        write(first, "1a")
        write(second, "2a")
        write(first, "1b")
        first.abort_transaction(PATIENCE_S)
        assert values(broker, read_committed=True) == []
        second.commit_transaction(PATIENCE_S)
        assert values(broker, read_committed=True) == [b"2a"]
        assert broker.transactions() == {"first": "CompleteAbort", "second": "CompleteCommit"}


def test_a_producer_that_lost_its_id_is_fenced() -> None:
    with Broker() as broker:
        zombie = producer_of(broker)
        zombie.begin_transaction()
        write(zombie, "lost")
        producer_of(broker)
        with pytest.raises(KafkaException) as caught:
            zombie.commit_transaction(PATIENCE_S)
        assert caught.value.args[0].fatal()
        assert values(broker, read_committed=True) == []
