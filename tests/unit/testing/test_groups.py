"""Consumer groups as a test sees them: who there is, and how far they have read (F4)."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer

from flintmq.testing import Broker

PATIENCE_S = 30.0


def test_a_lone_consumer_starts_at_once_and_its_commits_are_seen() -> None:
    with Broker() as broker:
        assert (broker.groups(), broker.committed("g")) == ({}, {})
        broker.produce("orders", "one", "two")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        with closing(consumer):
            consumer.subscribe(["orders"])
            assert len(consumer.consume(2, PATIENCE_S)) == 2
            assert broker.groups() == {"g": "Stable"}
            assert broker.committed("g") == {}
            consumer.commit(asynchronous=False)
            assert broker.committed("g") == {("orders", 0): 2}
        assert broker.groups() == {"g": "Empty"}
        broker.restart()
        assert broker.committed("g") == {("orders", 0): 2}
