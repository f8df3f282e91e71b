"""Clients of the demo's broker, each in a thread of its own: the shop's producer, and a consumer of the results.

Invariant: `metrics.sent` counts what the broker has acknowledged; when `finish` returns, nothing more is sent. Every
record of the topics that the pipeline writes is counted once. They are created before the pipeline runs, so that
reading can begin at once. This module must not know Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from flintmq.client.addresses import parse_address
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import Consumer
from flintmq.client.producer import Producer
from flintmq.demo.metrics import DemoMetrics
from flintmq.demo.shop import CLICKS, ORDERS, Shop, ShopRecord
from flintmq.records.record import Record

_EVERY_S: Final = 0.1


class ShopProducer:
    def __init__(self, address: str, metrics: DemoMetrics, *, rate: float, seconds: float, seed: int) -> None:
        self.error: BaseException | None = None
        self._address = address
        self._metrics = metrics
        self._seconds = seconds
        self._shop = Shop(seed=seed, rate=rate, begun=datetime.now(UTC))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with ClusterClient([parse_address(self._address)], client_id="demo-shop") as client:
                self._produce(client)
        except BaseException as error:
            # Raised by the conductor, in the thread that can end the demo.
            self.error = error

    def _produce(self, client: ClusterClient) -> None:
        producers = {name: Producer(client, client.topic(name, create=True)) for name in (ORDERS, CLICKS)}
        begun = time.monotonic()
        passed_s = 0.0
        while passed_s < self._seconds:
            is_last = self._stop.wait(_EVERY_S)
            passed_s = min(time.monotonic() - begun, self._seconds)
            made = list(self._shop.until(passed_s))
            for one in made:
                producers[one.topic].send(one.value, key=one.key)
            for producer in producers.values():
                producer.flush()
                producer.delivered.clear()
            self._count(made)
            if is_last:
                return

    def _count(self, made: list[ShopRecord]) -> None:
        metrics = self._metrics
        for one in made:
            metrics.sent[one.topic] += 1
            metrics.spoiled += bool(one.fault)
            metrics.amount += one.amount
            metrics.pairs += one.pairs


BOUGHT: Final = "bought"
DEAD: Final = "demo.dead"

_WAIT_MS: Final = 100
_VALUE_MAX: Final = 60


class ResultConsumer:
    def __init__(self, address: str, metrics: DemoMetrics) -> None:
        self.error: BaseException | None = None
        self._address = address
        self._metrics = metrics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        counts: dict[str, Callable[[Record], None]] = {
            BOUGHT: self._bought,
            DEAD: self._dead,
        }
        try:
            with ClusterClient([parse_address(self._address)], client_id="demo-view") as client:
                consumers = []
                for name, count in counts.items():
                    topic = client.topic(name, create=True)
                    consumers.append((Consumer(client, topic, dict.fromkeys(topic.partitions, 0)), count))
                while not self._stop.is_set():
                    for consumer, count in consumers:
                        for _, record in consumer.poll(_WAIT_MS):
                            count(record)
        except BaseException as error:
            # Raised by the conductor, in the thread that can end the demo.
            self.error = error

    def _bought(self, record: Record) -> None:
        self._metrics.bought += 1

    def _dead(self, record: Record) -> None:
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        value = (record.value or b"").decode(errors="replace")
        step, error = headers.get("flintmq.step", "?"), headers.get("flintmq.error", "?")
        self._metrics.dead_by_reason[f"{step}: {error.splitlines()[0] if error else ''}"] += 1
        source = f"{headers.get('flintmq.topic', '?')}-{headers.get('flintmq.partition', '?')}"
        self._metrics.last_dead = f"{source} at {headers.get('flintmq.offset', '?')}: {value[:_VALUE_MAX]}"
        # Last, so that who sees the number sees the rest.
        self._metrics.dead += 1
