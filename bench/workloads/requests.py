"""What one request costs when it carries next to nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench.figures import Figure, Kind, cpu, latencies
from bench.loads import ONE_RECORD, Driver, Handler, ProduceLoad
from bench.process import Meter
from bench.wire import Connection, body_of, frame
from bench.workloads.target import LIST_OFFSETS_VERSION, Target, Workload, list_offsets_request
from flintmq.protocol.messages import ApiVersionsRequest, ListOffsetsResponse

_BUSY_CONNECTIONS: Final = 50


def _one_record(in_flight: int, goal_ratio: float | None, target: Target) -> list[Figure]:
    requests = target.scaled(60_000, least=200)
    with target.topic() as topic, target.connect() as connection:
        load = ProduceLoad(topic, ONE_RECORD)
        load.run(connection, requests // 5, in_flight=in_flight)
        with target.measured() as meter:
            took = load.run(connection, requests, in_flight=in_flight)
    return [
        _cpu_of_one(meter, requests, goal_ratio),
        cpu("request: machine CPU", meter.cost.machine_cpu_s, per=requests / 1e6, unit="µs"),
        Figure("requests", requests / meter.cost.wall_s / 1e3, "k/s", Kind.WALL, lower_is_better=False),
        *latencies(took, name="request"),
    ]


def _ping(target: Target) -> list[Figure]:
    requests = target.scaled(30_000, least=200)
    request = frame(ApiVersionsRequest(), 0)
    with target.connect() as connection:
        _exchange(connection, request, requests // 5)
        with target.measured() as meter:
            took = _exchange(connection, request, requests)
    return [_cpu_of_one(meter, requests), *latencies(took, name="request")]


def _list_offsets(target: Target) -> list[Figure]:
    requests = target.scaled(20_000, least=200)
    with target.topic() as topic, target.connect() as connection:
        ProduceLoad(topic, ONE_RECORD).run(connection, topic.partitions, in_flight=1)
        request = frame(list_offsets_request(topic), LIST_OFFSETS_VERSION)
        _exchange(connection, request, requests // 5)
        with target.measured() as meter:
            took = _exchange(connection, request, requests)
        connection.send(request)
        answer = body_of(connection.read(), ListOffsetsResponse, LIST_OFFSETS_VERSION)
        if [one.offset for named in answer.topics for one in named.partitions] != [1] * topic.partitions:
            raise AssertionError("wrong end offsets")
    return [_cpu_of_one(meter, requests), *latencies(took, name="request")]


def _exchange(connection: Connection, request: bytearray, count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        connection.send(request)
        connection.read()
        took.append(time.perf_counter() - began)
    return took


def _cpu_of_one(meter: Meter, requests: int, goal_ratio: float | None = None) -> Figure:
    return cpu("request: CPU", meter.cost.broker_cpu_s, per=requests / 1e6, unit="µs", goal_ratio=goal_ratio)


class BusyConnection:
    """One request in flight at all times."""

    def __init__(self, load: ProduceLoad, took: list[float]) -> None:
        self._load = load
        self._took = took
        self._sent_at = 0.0

    def next(self) -> bytearray:
        self._sent_at = time.perf_counter()
        return self._load.next()

    def answered(self, answer: memoryview) -> bytearray:
        self._took.append(time.perf_counter() - self._sent_at)
        self._load.check(answer)
        return self.next()


def _busy_connections(target: Target) -> list[Figure]:
    requests = target.scaled(60_000, least=400)
    took: list[float] = []
    with target.topic() as topic, ExitStack() as connections:
        handlers: list[tuple[Connection, Handler]] = []
        for _ in range(_BUSY_CONNECTIONS):
            connection = connections.enter_context(target.connect(buffer_bytes=4096))
            client = BusyConnection(ProduceLoad(topic, ONE_RECORD), took)
            connection.send(client.next())
            handlers.append((connection, client.answered))
        driver = Driver(handlers)
        driver.run(lambda: len(took) >= requests // 5)
        warm = len(took)
        with target.measured() as meter:
            driver.run(lambda: len(took) >= warm + requests)
    done = len(took) - warm
    return [
        _cpu_of_one(meter, done),
        Figure("requests", done / meter.cost.wall_s / 1e3, "k/s", Kind.WALL, lower_is_better=False),
        *latencies(took[warm:], name="request"),
    ]


WORKLOADS: Final = (
    Workload(
        "small-64", "produce requests of one 100 B record, 64 in flight", partial(_one_record, 64, 0.33)
    ),
    Workload("small-1", "the same, one in flight", partial(_one_record, 1, 0.85)),
    Workload(
        "busy-50", "50 connections, each with one such request in flight at all times", _busy_connections
    ),
    Workload("ping", "ApiVersions, one in flight: the least that a request can cost", _ping),
    Workload("list-offsets", "the end of 6 partitions by ListOffsets 9, one in flight", _list_offsets),
)
