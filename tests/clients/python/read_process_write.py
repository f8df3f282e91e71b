"""A program that reads, processes and writes exactly once, until it is killed (KIP-98, KIP-447).

    read_process_write.py ADDRESS INPUT OUTPUT NAME [static]

What it reads from a partition of INPUT it writes to the same partition of OUTPUT, together with the offsets of its
group, in one transaction. Its transactional id is its name; with `static` so is its member of the group. It crashes
on whatever it cannot abort, and if a call takes too long: whoever started it starts it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

GROUP = "read-process-write"
BATCH = 20
TIMEOUT_S = 3.0


def with_retries(call: Callable[[], object]) -> None:
    """A call of the transactional producer, which may be repeated as it says itself."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            error = failure.args[0]
            if not error.retriable() or error.code() == KafkaError._TIMED_OUT:
                raise


def positions(messages: list[Message]) -> list[TopicPartition]:
    """Behind the last of each partition."""
    behind = {(one.topic(), one.partition()): one.offset() for one in messages}
    return [TopicPartition(*place, offset + 1) for place, offset in behind.items()]


def process(consumer: Consumer, producer: Producer, output: str, messages: list[Message]) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(output, message.value(), partition=message.partition())
    offsets = positions(messages)
    metadata = consumer.consumer_group_metadata()
    with_retries(lambda: producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S))
    with_retries(lambda: producer.commit_transaction(TIMEOUT_S))


def rewind(consumer: Consumer) -> None:
    """To what is committed: what was read since then has not been processed."""
    for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
        place.offset = max(place.offset, 0)
        consumer.seek(place)


def main(address: str, source: str, output: str, name: str, *options: str) -> None:
    common = {
        "bootstrap.servers": address,
        "client.id": name,
        "reconnect.backoff.max.ms": 200,
        # Otherwise librdkafka 2.16 may wait for ever for a group's coordinator that it has replaced by itself.
        "metadata.recovery.strategy": "none",
        "log_level": 2,
    }
    producer = Producer(
        {
            **common,
            "transactional.id": name,
            "transaction.timeout.ms": 4000,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
        }
    )
    # ORDER: what an earlier life has left open is aborted first, for its offsets are not known before.
    with_retries(lambda: producer.init_transactions(TIMEOUT_S))
    member = {"group.instance.id": name} if "static" in options else {}
    consumer = Consumer(
        {
            **common,
            **member,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 200,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(BATCH, 0.1) if one.error() is None]
        if not messages:
            continue
        try:
            process(consumer, producer, output, messages)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            with_retries(lambda: producer.abort_transaction(TIMEOUT_S))
            rewind(consumer)


if __name__ == "__main__":
    main(*sys.argv[1:])
