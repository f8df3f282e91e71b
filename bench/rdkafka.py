"""The same work through librdkafka, as most programs outside the JVM do it.

Python hands the records over in lists, so that librdkafka's own threads, not the interpreter, set the pace;
even so only the broker's CPU is worth comparing here. `consume` and `produce` run in the caller's process;
the consumer of the open loop has one of its own, since two threads of one interpreter would wait for each other.

    python -m bench.rdkafka BOOTSTRAP TOPIC PARTITIONS WARM COUNT      the consumer of the open loop
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.figures import percentile
from bench.loads import payload

_CHUNK: Final = 2000
_STALL_S: Final = 30.0
_STAMP: Final = struct.Struct(">q")
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WARM_ROUNDS: Final = 20

OPEN_LOOP_RECORD_BYTES: Final = 100


class DeliveryFailed(Exception):
    """librdkafka gave records back, or got none for too long."""


def is_available() -> bool:
    try:
        import confluent_kafka
    except ImportError:
        return False
    return hasattr(confluent_kafka.Producer, "produce_batch")


def produce(
    bootstrap: str, topic: str, *, partitions: int, records: int, size: int, settings: Mapping[str, object]
) -> None:
    """All records, acknowledged. A chunk goes to one partition, so that batches fill as they would under load."""
    import confluent_kafka

    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
            **settings,
        }
    )
    # Every message is a dictionary of its own, for librdkafka's binding marks those that did not fit.
    chunk = [{"value": payload(size, seed % 16)} for seed in range(_CHUNK)]
    sent = chunks = 0
    while sent < records:
        part = chunk if records - sent >= _CHUNK else chunk[: records - sent]
        sent += producer.produce_batch(topic, part, partition=chunks % partitions)
        chunks += 1
        producer.poll(0)
    if producer.flush(_STALL_S) or failures:
        raise DeliveryFailed(failures[0] if failures else f"nothing was acknowledged for {_STALL_S} s")


def consume(bootstrap: str, topic: str, *, partitions: int, records: int) -> int:
    """Read so many records from the start; the bytes of their values."""
    consumer = _consumer(bootstrap, topic, partitions)
    seen = size = 0
    heard_at = time.monotonic()
    try:
        while seen < records:
            messages = consumer.consume(min(10_000, records - seen), 1.0)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > _STALL_S:
                raise DeliveryFailed(f"{seen} of {records} records came")
            for message in messages:
                if message.error() is None:
                    seen += 1
                    size += len(message.value())
    finally:
        consumer.close()
    return size


class Transactions:
    """One transaction after the other on one topic, each read before the next begins."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, *, records: int) -> None:
        import confluent_kafka

        self._topic = topic
        self._records = [payload(100, seed) for seed in range(records)]
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        )
        self._producer.init_transactions(_STALL_S)
        self._consumer = _consumer(bootstrap, topic, 1, {"isolation.level": "read_committed"})

    def __enter__(self) -> Transactions:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def run(self) -> None:
        producer, left = self._producer, len(self._records)
        producer.begin_transaction()
        for record in self._records:
            producer.produce(self._topic, record, partition=0)
        producer.commit_transaction(_STALL_S)
        deadline = time.monotonic() + _STALL_S
        while left:
            left -= len(self._consumer.consume(left, _STALL_S))
            if left and time.monotonic() > deadline:
                raise DeliveryFailed(f"{left} committed records did not come")


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """What came of sending at a fixed rate, whatever the broker did."""

    p50_s: float
    p99_s: float
    backlog_s: float
    """How long after the last record was due the last one arrived."""
    client_cpu_share: float
    """Of the clients' core; near 1 the clients, not the broker, are what is measured."""


def open_loop(bootstrap: str, topic: str, *, partitions: int, records: int, rate: int) -> OpenLoop:
    """Each record carries the moment it was due, so a late send counts as latency (no coordinated omission)."""
    import confluent_kafka

    warm = _WARM_ROUNDS * partitions
    consumer = subprocess.Popen(
        [sys.executable, "-m", "bench.rdkafka", bootstrap, topic, str(partitions), str(warm), str(records)],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert consumer.stdout is not None
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0, "enable.idempotence": False}
        )
        rest = payload(OPEN_LOOP_RECORD_BYTES - _STAMP.size, 1)
        for index in range(warm):
            producer.produce(topic, _STAMP.pack(0) + rest, partition=index % partitions)
        if producer.flush(_STALL_S) or consumer.stdout.readline() != "live\n":
            raise DeliveryFailed("the open loop's consumer did not become live")
        cpu = _client_cpu_s()
        began = time.monotonic_ns()
        due = began
        for index in range(records):
            due = began + index * 1_000_000_000 // rate
            while (wait := due - time.monotonic_ns()) > 0:
                # Not to the end of the wait: waking up late is dearer than once more.
                time.sleep(min(wait / 2e9, 0.001) if wait > 50_000 else 0)
            while True:
                try:
                    producer.produce(topic, _STAMP.pack(due) + rest, partition=index % partitions)
                    break
                except BufferError:
                    producer.poll(0.005)
            if index % 256 == 0:
                producer.poll(0)
        sending_s = (time.monotonic_ns() - began) / 1e9
        cpu = _client_cpu_s() - cpu
        unsent = producer.flush(_STALL_S)
        answer = consumer.stdout.readline()
        if unsent or not answer:
            raise DeliveryFailed(f"{unsent} records of the open loop were never acknowledged")
        result = json.loads(answer)
        return OpenLoop(
            p50_s=result["p50_s"],
            p99_s=result["p99_s"],
            backlog_s=max(0.0, result["last_ns"] - due) / 1e9,
            client_cpu_share=(cpu + result["cpu_s"]) / sending_s,
        )
    finally:
        consumer.kill()
        consumer.wait()


def _tail(bootstrap: str, topic: str, *, partitions: int, warm: int, records: int) -> None:
    """Say when all warm records have come, then take the others' latencies."""
    consumer = _consumer(bootstrap, topic, partitions)
    seen_warm = 0
    took: list[int] = []
    last = cpu = 0.0
    while len(took) < records:
        # One at a time: asking for many would wait until many are there.
        message = consumer.poll(_STALL_S)
        now = time.monotonic_ns()
        if message is None:
            raise DeliveryFailed(f"{len(took)} of {records} records came")
        if message.error() is not None:
            continue
        (stamp,) = _STAMP.unpack_from(message.value())
        if stamp:
            took.append(now - stamp)
            last = now
            continue
        seen_warm += 1
        if seen_warm == warm:
            cpu = _client_cpu_s()
            sys.stdout.write("live\n")
            sys.stdout.flush()
    seconds = [one / 1e9 for one in took]
    result = {
        "p50_s": percentile(seconds, 0.5),
        "p99_s": percentile(seconds, 0.99),
        "last_ns": last,
        "cpu_s": _client_cpu_s() - cpu,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def _consumer(
    bootstrap: str, topic: str, partitions: int, settings: Mapping[str, object] | None = None
) -> Any:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            # The binding wants a group; partitions are assigned by hand and nothing is committed.
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 128 * 1024,
            "fetch.queue.backoff.ms": 10,
            **(settings or {}),
        }
    )
    consumer.assign(
        [
            confluent_kafka.TopicPartition(topic, index, confluent_kafka.OFFSET_BEGINNING)
            for index in range(partitions)
        ]
    )
    return consumer


def _client_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    bootstrap_, topic_, *numbers = sys.argv[1:]
    partitions_, warm_, records_ = map(int, numbers)
    _tail(bootstrap_, topic_, partitions=partitions_, warm=warm_, records=records_)
