"""Records that have had their time, in a broker whose clock the test holds (B3, Z7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from flintmq.testing import Broker

TIMEOUT_S = 30.0
NOW_MS = 1_700_000_000_000
HOUR_S = 3600


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(log_retention_check_interval_ms=1000, log_segment_delete_delay_ms=0) as started:
        started.clock.set(NOW_MS)
        yield started


def wait_for(condition: Callable[[], bool]) -> None:
    """Housekeeping begins when the clock moves and ends a little later, in threads."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def offsets(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "retention"}
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    finally:
        consumer.close()
    return low, high


def segments(broker: Broker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (Path(broker.data_dir) / f"{topic}-0").glob("*.log"))


def produce(broker: Broker, topic: str, *values: str) -> None:
    """Through a real client, stamped with the broker's time."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            "key",
            0,
            timestamp=broker.clock.now_ms(),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        assert producer.flush(TIMEOUT_S) == 0
    assert not failures


def test_records_older_than_retention_ms_go_when_the_clock_is_moved(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": HOUR_S * 1000})
    produce(broker, "t", "old", "older")
    broker.clock.advance(HOUR_S / 2)
    produce(broker, "t", "young")
    assert offsets(broker, "t") == (0, 3)
    broker.clock.advance(HOUR_S / 2 + 1)
    # All three are in one segment, whose newest record is not old enough.
    broker.clock.advance(1)
    assert [record.value for record in broker.records("t")] == [b"old", b"older", b"young"]
    broker.clock.advance(HOUR_S / 2)
    wait_for(lambda: offsets(broker, "t") == (3, 3))
    assert broker.records("t") == []
    produce(broker, "t", "next")
    assert offsets(broker, "t") == (3, 4)


def test_segments_of_their_own_go_one_by_one_with_segment_ms(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": 10_000, "segment.ms": 1_000})
    for second in range(3):
        produce(broker, "t", f"at {2 * second}")
        broker.clock.advance(2)
    assert segments(broker, "t") == [0, 1, 2]
    broker.clock.advance(5)
    wait_for(lambda: offsets(broker, "t") == (1, 3))
    wait_for(lambda: segments(broker, "t") == [1, 2])


def test_a_consumer_of_what_is_gone_is_told_where_the_log_begins(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": 10_000, "segment.ms": 1_000})
    produce(broker, "t", "gone")
    broker.clock.advance(20)
    produce(broker, "t", "here")
    wait_for(lambda: offsets(broker, "t") == (1, 2))
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "retention",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert (message.offset(), message.value()) == (1, b"here")
    finally:
        consumer.close()


def test_the_oldest_segments_go_when_the_log_is_larger_than_retention_bytes(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.bytes": 2_000, "segment.bytes": 1_000, "retention.ms": -1})
    produce(broker, "t", *("x" * 400 for _ in range(10)))
    before = segments(broker, "t")
    assert len(before) == 5
    broker.clock.advance(2)
    wait_for(lambda: len(segments(broker, "t")) < len(before))
    start, end = offsets(broker, "t")
    assert end == 10
    assert segments(broker, "t")[0] == start
    size = sum(path.stat().st_size for path in (Path(broker.data_dir) / "t-0").glob("*.log"))
    assert 2_000 <= size < 3_000


def test_a_restart_brings_nothing_back(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": 10_000, "segment.ms": 1_000})
    produce(broker, "t", "gone")
    broker.clock.advance(20)
    produce(broker, "t", "here")
    wait_for(lambda: offsets(broker, "t") == (1, 2))
    broker.restart()
    assert offsets(broker, "t") == (1, 2)
    assert [record.value for record in broker.records("t")] == [b"here"]
