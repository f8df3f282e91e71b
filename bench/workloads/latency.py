"""The closed loop: one record at a time, from the send to its acknowledgement and to a waiting consumer.

The fetch is parked at the broker before the record is sent, so end to end measures the wake-up, not a poll.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from bench.figures import Figure, cpu, latencies
from bench.loads import ONE_RECORD, Driver, FetchLoad, ProduceLoad
from bench.workloads.target import Target, Workload

_LONG_POLL_MS: Final = 10_000
_PARKING_S: Final = 0.0002
"""Time for the fetch to reach the broker and be parked there."""


class _RoundTrip:
    """The moments of one record; a new send begins when both have come."""

    def __init__(self, produce: ProduceLoad, fetch: FetchLoad) -> None:
        self._produce = produce
        self._fetch = fetch
        self._sent_at = 0.0
        self.acknowledged_s = 0.0
        self.delivered_s = 0.0

    def begin(self) -> bytearray:
        self.acknowledged_s = self.delivered_s = 0.0
        request = self._produce.next()
        self._sent_at = time.perf_counter()
        return request

    def acknowledged(self, answer: memoryview) -> None:
        self.acknowledged_s = time.perf_counter() - self._sent_at
        self._produce.check(answer)

    def fetched(self, answer: memoryview) -> bytearray | None:
        took = time.perf_counter() - self._sent_at
        if self._fetch.take(answer):
            self.delivered_s = took
            return None
        return self._fetch.next()  # the long poll ran out

    @property
    def is_over(self) -> bool:
        return self.acknowledged_s > 0 and self.delivered_s > 0


def _closed_loop(acks: int, target: Target) -> list[Figure]:
    count = target.scaled(10_000, least=100)
    warm = min(2_000, count // 2)
    acknowledged: list[float] = []
    delivered: list[float] = []
    with target.topic(1) as topic, target.connect() as producer, target.connect() as consumer:
        fetch = FetchLoad(topic, wait_ms=_LONG_POLL_MS)
        trip = _RoundTrip(ProduceLoad(topic, ONE_RECORD, acks=acks), fetch)
        driver = Driver([(producer, trip.acknowledged), (consumer, trip.fetched)])
        with target.measured() as meter:
            for _ in range(warm + count):
                consumer.send(fetch.next())
                time.sleep(_PARKING_S)
                producer.send(trip.begin())
                driver.run(lambda: trip.is_over)
                acknowledged.append(trip.acknowledged_s)
                delivered.append(trip.delivered_s)
    return [
        *latencies(acknowledged[warm:], name="acknowledged", goal_ratios=(0.9, 0.8)),
        *latencies(delivered[warm:], name="end to end", goal_ratios=(0.75, 0.8)),
        cpu("CPU per round trip", meter.cost.broker_cpu_s, per=(warm + count) / 1e6, unit="µs"),
    ]


WORKLOADS: Final = (
    Workload(
        "latency", "closed loop of single records to a parked long poll, acks=1", partial(_closed_loop, 1)
    ),
    Workload("latency-all", "the same with acks=all", partial(_closed_loop, -1)),
)
