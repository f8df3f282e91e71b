"""The closed loop: one record at a time, from the send to its acknowledgement and to a waiting consumer.

The fetch is parked at the broker before the record is sent, so end to end measures the wake-up, not a poll.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench.figures import Figure, cpu, latencies
from bench.loads import ONE_RECORD, Driver, FetchLoad, ProduceLoad, Topic
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


class ClosedLoop(ExitStack):
    """One record at a time to one topic, over two connections, for as long as the block lasts."""

    @dataclass(slots=True)
    class Times:
        """Of each round trip, in order."""

        acknowledged_s: list[float] = field(default_factory=list)
        delivered_s: list[float] = field(default_factory=list)

        def extend(self, other: ClosedLoop.Times) -> None:
            self.acknowledged_s += other.acknowledged_s
            self.delivered_s += other.delivered_s

    def __init__(self, target: Target, topic: Topic, *, acks: int) -> None:
        super().__init__()
        self._producer = self.enter_context(target.connect())
        self._consumer = self.enter_context(target.connect())
        self._fetch = FetchLoad(topic, wait_ms=_LONG_POLL_MS)
        self._trip = _RoundTrip(ProduceLoad(topic, ONE_RECORD, acks=acks), self._fetch)
        self._driver = Driver(
            [(self._producer, self._trip.acknowledged), (self._consumer, self._trip.fetched)]
        )

    def run(self, count: int) -> Times:
        times, trip = self.Times(), self._trip
        for _ in range(count):
            self._consumer.send(self._fetch.next())
            time.sleep(_PARKING_S)
            self._producer.send(trip.begin())
            self._driver.run(lambda: trip.is_over)
            times.acknowledged_s.append(trip.acknowledged_s)
            times.delivered_s.append(trip.delivered_s)
        return times


def _closed_loop(acks: int, target: Target) -> list[Figure]:
    count = target.scaled(10_000, least=100)
    warm = min(2_000, count // 2)
    with target.topic(1) as topic, ClosedLoop(target, topic, acks=acks) as loop, target.measured() as meter:
        loop.run(warm)
        times = loop.run(count)
    return [
        *latencies(times.acknowledged_s, name="acknowledged", goal_ratios=(0.85, 0.8)),
        *latencies(times.delivered_s, name="end to end", goal_ratios=(0.76, 0.8)),
        cpu("CPU per round trip", meter.cost.broker_cpu_s, per=(warm + count) / 1e6, unit="µs"),
    ]


WORKLOADS: Final = (
    Workload(
        "latency", "closed loop of single records to a parked long poll, acks=1", partial(_closed_loop, 1)
    ),
    Workload("latency-all", "the same with acks=all", partial(_closed_loop, -1)),
)
