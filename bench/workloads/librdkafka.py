"""The same through librdkafka: only the broker's CPU is compared, for the client's core is the slower one."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench import rdkafka
from bench.figures import GB, MB, Figure, Kind, cpu
from bench.loads import FetchLoad
from bench.workloads.target import PARTITIONS, Target, Workload

_SIZE: Final = 100
_TOTAL_BYTES: Final = 300 * MB
_RATE: Final = 10_000
_OPEN_LOOP_S: Final = 10
_SMALL_GOAL, _LARGE_GOAL, _SAFE_GOAL, _CONSUME_GOAL = 0.5, 0.6, 0.4, 0.8


def _stream(settings: dict[str, object], goal_ratio: float, target: Target) -> list[Figure]:
    records = target.scaled(_TOTAL_BYTES / _SIZE, least=5_000)
    warm = max(1_000, records // 10)
    settings = {"linger.ms": 5, **settings}
    bootstrap = target.broker.bootstrap
    with target.topic() as topic:
        rdkafka.produce(
            bootstrap, topic.name, partitions=PARTITIONS, records=warm, size=_SIZE, settings=settings
        )
        with target.measured() as produced:
            rdkafka.produce(
                bootstrap, topic.name, partitions=PARTITIONS, records=records, size=_SIZE, settings=settings
            )
        with target.connect() as connection:
            sample = FetchLoad(topic)
            sample.run(connection, 1)
        with target.measured() as consumed:
            size = rdkafka.consume(bootstrap, topic.name, partitions=PARTITIONS, records=records + warm)
    return [
        cpu(
            "produce: CPU per GB",
            produced.cost.broker_cpu_s,
            per=records * _SIZE / GB,
            goal_ratio=goal_ratio,
        ),
        cpu("produce: machine CPU per GB", produced.cost.machine_cpu_s, per=records * _SIZE / GB),
        cpu("consume: CPU per GB", consumed.cost.broker_cpu_s, per=size / GB, goal_ratio=_CONSUME_GOAL),
        cpu("consume: machine CPU per GB", consumed.cost.machine_cpu_s, per=size / GB),
        # How full librdkafka made its batches: brokers compare only if they got much the same.
        Figure("records in a batch", sample.records / sample.batches, "", Kind.COUNT, lower_is_better=False),
    ]


def _open_loop(target: Target) -> list[Figure]:
    records = target.scaled(_RATE * _OPEN_LOOP_S, least=500)
    with target.topic() as topic, target.measured() as meter:
        result = rdkafka.open_loop(
            target.broker.bootstrap, topic.name, partitions=PARTITIONS, records=records, rate=_RATE
        )
    return [
        Figure("p50", result.p50_s * 1e3, "ms", Kind.WALL),
        Figure("p99", result.p99_s * 1e3, "ms", Kind.WALL, goal=10.0),
        Figure("backlog", result.backlog_s * 1e3, "ms", Kind.WALL, goal=100.0),
        cpu("CPU per record", meter.cost.broker_cpu_s, per=records / 1e6, unit="µs"),
        Figure("clients' core busy", result.client_cpu_share * 100, "%", Kind.COUNT),
    ]


def _workload(name: str, summary: str, settings: dict[str, object], goal_ratio: float) -> Workload:
    return Workload(name, summary, partial(_stream, settings, goal_ratio), needs_librdkafka=True)


WORKLOADS: Final = (
    _workload(
        "rdk-16k",
        "librdkafka, 100 B records, linger 5 ms, batch.size 16 KiB; consumed again",
        {"acks": 1, "enable.idempotence": False, "batch.size": 16 * 1024},
        _SMALL_GOAL,
    ),
    _workload(
        "rdk-128k",
        "the same with batch.size 128 KiB",
        {"acks": 1, "enable.idempotence": False, "batch.size": 128 * 1024},
        _LARGE_GOAL,
    ),
    _workload(
        "rdk-idempotent",
        "librdkafka, idempotent with acks=all, its own batch size",
        {"enable.idempotence": True},
        _SAFE_GOAL,
    ),
    Workload(
        "open-loop",
        "10,000 single records a second through librdkafka without linger, to a live consumer",
        _open_loop,
        needs_librdkafka=True,
    ),
)
