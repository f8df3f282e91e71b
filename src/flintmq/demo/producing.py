"""The shop's records on their way into the broker, in a thread of its own, as they happen.

Invariant: `figures.sent` counts what the broker has acknowledged; when `finish` returns, nothing more is sent.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Final

from flintmq.client.addresses import parse_address
from flintmq.client.cluster import ClusterClient
from flintmq.client.producer import Producer
from flintmq.demo.figures import DemoFigures
from flintmq.demo.shop import CLICKS, ORDERS, Made, Shop

_EVERY_S: Final = 0.1


class Producing:
    def __init__(self, address: str, figures: DemoFigures, *, rate: float, seconds: float, seed: int) -> None:
        self.error: BaseException | None = None
        self._address = address
        self._figures = figures
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

    def _count(self, made: list[Made]) -> None:
        figures = self._figures
        for one in made:
            figures.sent[one.topic] += 1
            figures.spoiled += bool(one.fault)
            figures.amount += one.amount
            figures.pairs += one.pairs
