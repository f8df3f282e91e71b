"""What the pipeline writes to topics, read as any consumer would, in a thread of its own.

Invariant: every record of the topics is counted once. The topics are made before the pipeline runs, so that reading
can begin at once. This module must not know Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from flintmq.client.addresses import parse_address
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import Consumer
from flintmq.demo.figures import DemoFigures
from flintmq.records.record import Record

BOUGHT: Final = "bought"
DEAD: Final = "demo.dead"

_WAIT_MS: Final = 100
_VALUE_MAX: Final = 60


class Watching:
    def __init__(self, address: str, figures: DemoFigures) -> None:
        self.error: BaseException | None = None
        self._address = address
        self._figures = figures
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
        self._figures.bought += 1

    def _dead(self, record: Record) -> None:
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        value = (record.value or b"").decode(errors="replace")
        step, error = headers.get("flintmq.step", "?"), headers.get("flintmq.error", "?")
        self._figures.dead_by_reason[f"{step}: {error.splitlines()[0] if error else ''}"] += 1
        place = f"{headers.get('flintmq.topic', '?')}-{headers.get('flintmq.partition', '?')}"
        self._figures.last_dead = f"{place} at {headers.get('flintmq.offset', '?')}: {value[:_VALUE_MAX]}"
        # Last, so that who sees the number sees the rest.
        self._figures.dead += 1
