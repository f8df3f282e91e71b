"""Quotas for tests, and clients that go as fast as they may."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import confluent_kafka

from flintmq.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from support.wire.wire import Wire

TIMEOUT_S = 30.0


def set_quotas(address: str, entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> None:
    """Names by type, None being the default; quotas by name, None deleting one."""
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
        ],
    )
    with Wire(address) as wire:
        response = wire.ask(request(entries=[entry]), 1)
        assert isinstance(response, AlterClientQuotasResponse)
        assert [(one.error_code, one.error_message) for one in response.entries] == [(0, None)]


class Throughput(NamedTuple):
    bytes_per_s: float
    throttled: list[float]
    """Throttle times in seconds that responses had since the measurement began."""


def librdkafka(address: str, client_id: str, throttled: list[float]) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "client.id": client_id,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
        "log_level": 0,
        "logger": logging.getLogger("librdkafka"),
    }


def write(address: str, client_id: str, topic: str, *, warm_up_s: float, measured_s: float) -> Throughput:
    """Write as fast as the broker lets the client, and measure what is acknowledged after a while."""
    throttled: list[float] = []
    producer = confluent_kafka.Producer(
        {**librdkafka(address, client_id, throttled), "linger.ms": 5, "batch.size": 8192}
    )
    acked = 0

    def count(error: object, message: Any) -> None:
        nonlocal acked
        if error is None:
            acked += len(message.value())

    def go_on() -> None:
        try:
            producer.produce(topic, bytes(1000), on_delivery=count)
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)

    try:
        return _measure(go_on, lambda: acked, throttled, warm_up_s, measured_s)
    finally:
        producer.purge()
        producer.flush(TIMEOUT_S)


def read(address: str, client_id: str, topic: str, *, warm_up_s: float, measured_s: float) -> Throughput:
    throttled: list[float] = []
    consumer = confluent_kafka.Consumer(
        {
            **librdkafka(address, client_id, throttled),
            "group.id": f"{client_id}-{time.monotonic_ns()}",
            "enable.auto.commit": False,
            # Not much at a time: a response is sent as a whole or not at all.
            "max.partition.fetch.bytes": 100_000,
            "fetch.max.bytes": 1_000_000,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    received = 0

    def go_on() -> None:
        nonlocal received
        for message in consumer.consume(1000, 0.01):
            assert message.error() is None
            received += len(message.value())

    try:
        return _measure(go_on, lambda: received, throttled, warm_up_s, measured_s)
    finally:
        consumer.close()


def _measure(
    go_on: Callable[[], object],
    done: Callable[[], int],
    throttled: list[float],
    warm_up_s: float,
    measured_s: float,
) -> Throughput:
    deadline = time.monotonic() + warm_up_s
    while time.monotonic() < deadline:
        go_on()
    throttled.clear()
    began, before = time.monotonic(), done()
    while time.monotonic() < began + measured_s:
        go_on()
    return Throughput((done() - before) / (time.monotonic() - began), list(throttled))
