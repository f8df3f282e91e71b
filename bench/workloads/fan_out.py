"""One producer and three consumers that follow it live."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.figures import MB, Figure, Kind, cpu
from bench.loads import BatchShape, Driver, FetchLoad, Handler, ProduceLoad
from bench.wire import Connection
from bench.workloads.streams import IN_FLIGHT
from bench.workloads.target import Target, Workload

_CONSUMERS: Final = 3
_SHAPE: Final = BatchShape(100, 16 * 1024)


class _Producer:
    """Keeps a number of requests in flight until all are sent."""

    def __init__(self, load: ProduceLoad, requests: int) -> None:
        self._load = load
        self._unsent = requests

    def begin(self, connection: Connection) -> None:
        for _ in range(min(IN_FLIGHT, self._unsent)):
            self._unsent -= 1
            connection.send(self._load.next())

    def answered(self, answer: memoryview) -> bytearray | None:
        self._load.check(answer)
        if not self._unsent:
            return None
        self._unsent -= 1
        return self._load.next()


def _follow(load: FetchLoad) -> Handler:
    def answered(answer: memoryview) -> bytearray:
        load.take(answer)
        return load.next()

    return answered


def _fan_out(target: Target) -> list[Figure]:
    requests = target.scaled(400 * MB / _SHAPE.payload_bytes, least=20)
    records = requests * _SHAPE.count
    with target.topic() as topic, ExitStack() as connections:
        producer = _Producer(ProduceLoad(topic, _SHAPE), requests)
        consumers = [FetchLoad(topic) for _ in range(_CONSUMERS)]
        handlers: list[tuple[Connection, Handler]] = []
        for handler in (producer.answered, *map(_follow, consumers)):
            handlers.append((connections.enter_context(target.connect()), handler))
        with target.measured() as meter:
            for (connection, _), consumer in zip(handlers[1:], consumers, strict=True):
                connection.send(consumer.next())
            producer.begin(handlers[0][0])
            Driver(handlers).run(lambda: all(one.records >= records for one in consumers))
    cost = meter.cost
    return [
        cpu("CPU per million records", cost.broker_cpu_s, per=records / 1e6, goal_ratio=0.5),
        Figure("produced", records / cost.wall_s / 1e6, "M/s", Kind.WALL, lower_is_better=False),
    ]


WORKLOADS: Final = (
    Workload(
        "fan-out", "one producer of 16 KiB batches and three consumers that follow it live, raw", _fan_out
    ),
)
